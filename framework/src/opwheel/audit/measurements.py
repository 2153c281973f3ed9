"""The checks. Each takes an operator and a call's arguments, needs PyTorch alone, and is a part of its reproductions.

A check raises ``AssertionError`` with what is wrong, and ``NotTried`` with why it says nothing about this operator.
Every other exception is the operator's. ``step`` is the size of a finite difference.
"""

# ruff: noqa: ARG001, D103
from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class NotTried(Exception):  # noqa: N818  # no error
    """Why a check says nothing about an operator."""


def copies(value: Any) -> Any:
    return pytree.tree_map(lambda v: v.detach().clone() if isinstance(v, Tensor) else v, value)


def tensors_of(value: Any) -> list[Tensor]:
    return [v for v in pytree.tree_leaves(value) if isinstance(v, Tensor)]


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return pytree.tree_map(lambda v: change(v) if isinstance(v, Tensor) else v, value)


def is_random(op: Any) -> bool:
    names = [argument.name for argument in op._schema.arguments]
    return torch.Tag.nondeterministic_seeded in op.tags or "generator" in names


def written(op: Any) -> set[str]:
    return {a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write}


def by_name(op: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    names = [argument.name for argument in op._schema.arguments]
    return {**dict(zip(names, args)), **kwargs}  # noqa: B905  # arguments with defaults may lack


def require_values(op: Any) -> None:
    """The check compares values: the operator must give the same ones for the same arguments."""
    if is_random(op):
        raise NotTried("the operator is random")
    if op.namespace == "aten" and "empty" in op._opname:
        raise NotTried("the results are new memory")
    if any(argument.name == "storage_offset" for argument in op._schema.arguments):
        raise NotTried("the operator reads memory by strides that are given")


def close(got: Any, want: Any, what: str, tolerance: float = 0.0) -> None:
    got, want = tensors_of(got), tensors_of(want)
    assert len(got) == len(want), f"{what}: {len(got)} tensors, expected {len(want)}"
    for i, (one, other) in enumerate(zip(got, want, strict=True)):
        assert one.shape == other.shape, f"{what}: result {i} is {tuple(one.shape)}, expected {tuple(other.shape)}"
        assert one.dtype == other.dtype, f"{what}: result {i} is {one.dtype}, expected {other.dtype}"
        if one.layout is not torch.strided or one.is_quantized:
            continue
        number = one.is_floating_point() or one.is_complex()
        bound = max(tolerance, 256 * torch.finfo(one.dtype).eps) if number else 0.0
        size = other.detach().abs().nan_to_num(0, 0, 0).max().item() if number and other.numel() else 0.0
        torch.testing.assert_close(
            one.detach(),
            other.detach(),
            rtol=bound,
            atol=bound * max(1.0, size),
            equal_nan=True,
            msg=lambda text: f"{what}: result {i}: {text}",  # noqa: B023  # called at once
        )


# --- shapes, memory, values ------------------------------------------------------------------------------------------


def call(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """The call itself."""
    op(*copies(args), **copies(kwargs))


def fake(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """The fake kernel's results have the shape, dtype, strides and device of the real ones."""
    real = tensors_of(op(*copies(args), **copies(kwargs)))
    with torch._subclasses.FakeTensorMode() as mode:
        given = with_tensors((args, kwargs), mode.from_tensor)
        try:
            guessed = tensors_of(op(*given[0], **given[1]))
        except torch._subclasses.fake_tensor.UnsupportedOperatorException:
            raise NotTried("there is no fake kernel") from None
        except (
            torch._subclasses.fake_tensor.DynamicOutputShapeException,
            torch._subclasses.fake_tensor.DataDependentOutputException,
        ):
            raise NotTried("the results' shape depends on values") from None
    assert len(real) == len(guessed), f"fake: {len(guessed)} results, the kernel gives {len(real)}"
    for i, (one, true) in enumerate(zip(guessed, real, strict=True)):
        assert one.dtype == true.dtype, f"fake: result {i} is {one.dtype}, the kernel's is {true.dtype}"
        assert one.device == true.device, f"fake: result {i} is on {one.device}, the kernel's on {true.device}"
        sizes, true_sizes = tuple(one.shape), tuple(true.shape)
        if any(not isinstance(size, int) for size in sizes):
            continue  # the shape depends on values
        assert sizes == true_sizes, f"fake: result {i} has shape {sizes}, the kernel's {true_sizes}"
        if true.layout is not torch.strided or not true.numel():
            continue
        strides = [s for s, n in zip(one.stride(), sizes, strict=True) if n > 1]
        true_strides = [s for s, n in zip(true.stride(), sizes, strict=True) if n > 1]
        assert strides == true_strides, f"fake: result {i} has strides {one.stride()}, the kernel's {true.stride()}"


def writes(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments that the schema does not mark as written are not."""
    before, given = copies((args, kwargs)), copies((args, kwargs))
    op(*given[0], **given[1])
    for name, value in by_name(op, *given).items():
        if name not in written(op):
            close(value, by_name(op, *before)[name], f"'{name}', which the schema does not mark as written")


def aliases(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Results share memory with arguments and with each other only as the schema says."""
    given = copies((args, kwargs))
    results = op(*given[0], **given[1])
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    seen: dict[int, str] = {}
    free = [r for r, info in zip(results, op._schema.returns) if info.alias_info is None]  # noqa: B905
    for name, value in by_name(op, *given).items():
        for one in tensors_of(value):
            if one.layout is torch.strided and one.numel():
                seen[one.untyped_storage().data_ptr()] = f"the argument '{name}'"
    for i, one in enumerate(tensors_of(free)):
        if one.layout is torch.strided and one.numel():
            place = one.untyped_storage().data_ptr()
            assert place not in seen, f"result {i} shares memory with {seen[place]}, and the schema does not say so"
            seen[place] = f"result {i}"


def every_second(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, 1)], -1)[..., 0]


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT if x.dim() > 1 else every_second(x)


def compare_layouts(op: Any, args: Any, kwargs: Any, layout: Callable[[Tensor], Tensor]) -> None:
    require_values(op)
    if any(info.alias_info is not None and not info.alias_info.is_write for info in op._schema.returns):
        raise NotTried("the operator returns views")
    dense = with_tensors((args, kwargs), lambda x: x.contiguous().clone() if x.layout is torch.strided else x.clone())
    given = with_tensors(dense, lambda x: layout(x) if x.layout is torch.strided and not x.is_quantized else x)
    want = op(*dense[0], **dense[1])
    try:
        got = op(*given[0], **given[1])
    except RuntimeError as error:
        raise NotTried(f"the operator refuses these strides: {error}") from error
    close(got, want, f"{layout.__name__.replace('_', ' ')} arguments, compared with contiguous ones")
    for name in written(op):
        close(by_name(op, *given)[name], by_name(op, *dense)[name], f"'{name}' after the call, {layout.__name__}")


def strides(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments that are not contiguous give what contiguous ones give."""
    compare_layouts(op, args, kwargs, transposed)
    compare_layouts(op, args, kwargs, every_second)


def repeated(x: Tensor) -> Tensor:
    return x[:1].expand(x.shape) if x.dim() and x.shape[0] else x


def expanded(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments whose rows are the same memory give what copies of them give."""
    if written(op):
        raise NotTried("the operator writes to its arguments")
    if any(not x.is_floating_point() and not x.is_complex() for x in tensors_of((args, kwargs))):
        raise NotTried("rows of indices may not be the same")
    args, kwargs = with_tensors((args, kwargs), lambda x: repeated(x).contiguous() if x.layout is torch.strided else x)
    compare_layouts(op, args, kwargs, repeated)


def offset(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments inside of larger memory give the same, and nothing is written around them."""
    rooms = []

    def inside(x: Tensor) -> Tensor:
        room = torch.cat([x.new_full((8,), 1), x.flatten(), x.new_full((8,), 1)])
        rooms.append(room)
        return room[8:-8].view(x.shape)

    compare_layouts(op, args, kwargs, inside)
    for room in rooms:
        ends = torch.cat([room[:8], room[-8:]])
        assert torch.equal(ends, torch.ones_like(ends)), "the operator writes outside of an argument"


def empty(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments without rows are computed or refused."""
    given = with_tensors((args, kwargs), lambda x: x[:0].clone() if x.dim() else x.clone())
    try:
        op(*given[0], **given[1])
    except (RuntimeError, ValueError, IndexError) as error:
        raise NotTried(f"the operator refuses them: {error}") from error


def repeatable(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """The same call gives the same, time after time."""
    require_values(op)
    first = op(*copies(args), **copies(kwargs))
    want = copies(first)
    for _ in range(3):
        close(op(*copies(args), **copies(kwargs)), want, "the same call again")
    close(first, want, "the result of a call, after later calls")


def threads(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Calls in several threads give what one after another they give."""
    require_values(op)
    given = []
    for k in range(4):
        scaled = with_tensors((args, kwargs), lambda x: x * (1 + k / 8) if x.is_floating_point() else x.clone())  # noqa: B023
        given.append(scaled)
    want = [op(*copies(a), **copies(k)) for a, k in given]
    got: dict[int, Any] = {}
    for _ in range(3):
        started = [
            threading.Thread(target=lambda i=i, a=a, k=k: got.update({i: op(*copies(a), **copies(k))}))
            for i, (a, k) in enumerate(given)
        ]
        for one in started:
            one.start()
        for one in started:
            one.join()
        assert len(got) == 4, "a call in a thread raises"
        close([got[i] for i in range(4)], want, "calls in four threads")


def uninitialized(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Results do not depend on what new memory holds."""
    require_values(op)
    want = copies(op(*copies(args), **copies(kwargs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = copies((args, kwargs))
        settings: Any = torch.utils.deterministic
        settings.fill_uninitialized_memory = True  # with nan, or the largest integer
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            got = op(*given[0], **given[1])
        finally:
            torch.use_deterministic_algorithms(False)
    close(got, want, "new memory filled with nan before the call")


# --- derivatives -----------------------------------------------------------------------------------------------------


def wide(op: Any, args: Any, kwargs: Any) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """The operator in float64 as a function of its differentiable tensors, and these."""
    if is_random(op):
        raise NotTried("the operator is random")
    if written(op):
        raise NotTried("the operator writes to its arguments")
    if any(x.is_complex() for x in tensors_of((args, kwargs))):
        raise NotTried("complex numbers")
    leaves, spec = pytree.tree_flatten((copies(args), copies(kwargs)))
    if any(isinstance(x, Tensor) and (x.layout is not torch.strided or x.is_quantized) for x in leaves):
        raise NotTried("sparse or quantized tensors")
    leaves = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in leaves]
    floats = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point()]

    def function(*inputs: Tensor) -> list[Tensor]:
        values = list(leaves)
        for i, one in zip(chosen, inputs, strict=True):
            values[i] = one
        a, k = pytree.tree_unflatten(values, spec)
        return [r for r in tensors_of(op(*a, **k)) if r.is_floating_point()]

    # What has no gradient in reverse mode is not a variable: boxes of a pooling, statistics of a normalization.
    chosen = floats
    inputs = [leaves[i].requires_grad_() for i in floats]
    try:
        results = [r for r in function(*inputs) if r.requires_grad]
    except (RuntimeError, NotImplementedError) as error:
        raise NotTried(f"the operator refuses float64 tensors that require grad: {error}") from error
    if not results:
        raise NotTried("the results do not require grad")
    ones = [torch.ones_like(r) for r in results]
    gradients = torch.autograd.grad(results, inputs, ones, allow_unused=True)
    chosen = [i for i, g in zip(floats, gradients, strict=True) if g is not None]
    differentiable = [r.requires_grad for r in function(*(leaves[i] for i in chosen))]
    variables = [leaves[i].detach() for i in chosen]
    for i in floats:
        leaves[i] = leaves[i].detach()
    if not chosen:
        raise NotTried("there is no gradient")

    def of(*inputs: Tensor) -> list[Tensor]:
        return [r for r, is_one in zip(function(*inputs), differentiable, strict=True) if is_one]

    return of, variables


def random_like(tensors: list[Tensor], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(x.shape, generator=generator, dtype=torch.float64) + 0.25 for x in tensors]


def symmetric_like(x: Tensor, change: Tensor) -> Tensor:
    """The change, symmetric where x is: operators on symmetric matrices read one half of them."""
    is_square = x.dim() > 1 and x.shape[-1] == x.shape[-2] > 1
    return (change + change.mT) / 2 if is_square and torch.equal(x, x.mT) else change


def directions(inputs: list[Tensor]) -> list[Tensor]:
    return [symmetric_like(x, t) for x, t in zip(inputs, random_like(inputs, 7), strict=True)]


def finite_difference(f: Any, inputs: list[Tensor], tangents: list[Tensor], step: float) -> list[Tensor]:
    """The directional derivative; nan where two sizes of the step do not agree, as at a kink."""

    def at(size: float) -> list[Tensor]:
        up = f(*(x + size * t for x, t in zip(inputs, tangents, strict=True)))
        down = f(*(x - size * t for x, t in zip(inputs, tangents, strict=True)))
        return [(u.detach() - d.detach()) / (2 * size) for u, d in zip(up, down, strict=True)]

    slopes = zip(at(step), at(step / 4), strict=True)
    return [torch.where((a - b).abs() <= 1e-5 * (1 + b.abs()), b, torch.nan) for a, b in slopes]


def same_slopes(got: list[Tensor], want: list[Tensor], what: str) -> None:
    for i, (one, other) in enumerate(zip(got, want, strict=True)):
        known = other.isfinite()
        wrong = known & ~((one.detach() - other).abs() <= 1e-4 * (1 + other.abs()))
        assert not wrong.any(), (
            f"{what}: {int(wrong.sum())} of {wrong.numel()} values of result {i} are wrong; the first is "
            f"{one.detach()[wrong][0].item():.6g}, finite differences give {other[wrong][0].item():.6g}"
        )


def project(results: list[Tensor], transform: bool = False) -> Tensor:
    """A number that depends on each result, by weights of its own; the gradients of these are not contiguous."""
    total = torch.zeros((), dtype=torch.float64)
    for r, w in zip(results, random_like(results, 11), strict=True):
        total = total + ((r.mT * w.mT.contiguous()).sum() if transform and r.dim() > 1 else (r * w).sum())
    return total


def gradients(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Gradients are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(lambda *x: [project(f(*x))], inputs, tangents, step)
    for transform, name in ((False, "gradients"), (True, "gradients, where those of the results are transposed")):
        leaves = [x.clone().requires_grad_() for x in inputs]
        found = torch.autograd.grad(project(f(*leaves), transform), leaves)
        same_slopes([torch.stack([(g * t).sum() for g, t in zip(found, tangents, strict=True)]).sum()], want, name)
    for i, x in enumerate(inputs):
        alone = [t if j == i else torch.zeros_like(t) for j, t in enumerate(tangents)]
        want = finite_difference(lambda *x: [project(f(*x))], inputs, alone, step)
        same_slopes([(found[i] * tangents[i]).sum()], want, f"gradient of differentiable tensor {i}")


def second_derivatives(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Gradients of gradients are the slopes of gradients."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)

    def slopes(*inputs: Tensor, create_graph: bool = False) -> list[Tensor]:
        leaves = [x if x.requires_grad else x.clone().requires_grad_() for x in inputs]
        total = (project(f(*leaves)) + 1) ** 2
        return list(torch.autograd.grad(total, leaves, create_graph=create_graph))

    leaves = [x.clone().requires_grad_() for x in inputs]
    first = project(slopes(*leaves, create_graph=True))
    if not first.requires_grad:
        raise AssertionError("second derivatives: gradients made with create_graph=True do not require grad")
    second = torch.autograd.grad(first, leaves, allow_unused=True)
    got = sum((g * t).sum() for g, t in zip(second, tangents, strict=True) if g is not None)
    want = finite_difference(lambda *x: [project(slopes(*x))], inputs, tangents, step)
    same_slopes([torch.as_tensor(got)], want, "second derivatives")


def forward_mode(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Tangents of dual numbers are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(f, inputs, tangents, step)
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)]
        found = [torch.autograd.forward_ad.unpack_dual(r).tangent for r in f(*duals)]
    got = [torch.zeros_like(w) if t is None else t for t, w in zip(found, want, strict=True)]
    same_slopes(got, want, "tangents of dual numbers")


def func_jvp(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Tangents of torch.func.jvp are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(f, inputs, tangents, step)
    got = torch.func.jvp(lambda *x: tuple(f(*x)), tuple(inputs), tuple(tangents))[1]
    same_slopes(list(got), want, "tangents of torch.func.jvp")


def func_grad(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Gradients of torch.func.grad are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(lambda *x: [project(f(*x))], inputs, tangents, step)
    found = torch.func.grad(lambda *x: project(f(*x)), tuple(range(len(inputs))))(*inputs)
    got = sum((g * t).sum() for g, t in zip(found, tangents, strict=True))
    same_slopes([torch.as_tensor(got)], want, "gradients of torch.func.grad")


# --- transforms of programs ------------------------------------------------------------------------------------------


def vmap(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Vmap over each tensor, and over all, gives what a loop gives."""
    require_values(op)
    if written(op):
        raise NotTried("the operator writes to its arguments")
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point()]

    def run(*leaves: Any) -> tuple[Tensor, ...]:
        a, k = pytree.tree_unflatten(leaves, spec)
        return tuple(tensors_of(op(*a, **k)))

    for chosen in [[i] for i in places] + ([places] if len(places) > 1 else []):
        for dim in (0, -1):
            examples = [[x * (1 - b / 8) if i in chosen else copies(x) for i, x in enumerate(leaves)] for b in range(3)]
            stacked = [torch.stack([e[i] for e in examples], dim) if i in chosen else x for i, x in enumerate(leaves)]
            in_dims = tuple(dim if i in chosen else None for i in range(len(leaves)))
            results = [run(*e) for e in examples]
            if len({tuple(r.shape for r in one) for one in results}) > 1:
                raise NotTried("the results' shape depends on values")
            want = [torch.stack(parts) for parts in zip(*results, strict=True)]
            got = torch.vmap(run, in_dims=in_dims)(*stacked)
            close(got, want, f"vmap over leaves {chosen} along dimension {dim}, compared with a loop")


def autocast(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Under autocast the call is one with all float32 tensors cast to one dtype, or with none cast."""
    require_values(op)
    if written(op):
        raise NotTried("the operator writes to its arguments")
    given = with_tensors((args, kwargs), lambda x: x.float() if x.is_floating_point() else x)
    want = op(*copies(given[0]), **copies(given[1]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = op(*copies(given[0]), **copies(given[1]))
    for i, (one, other) in enumerate(zip(tensors_of(got), tensors_of(want), strict=True)):
        known = (torch.bfloat16, other.dtype)
        assert one.dtype in known, f"autocast: result {i} is {one.dtype}; without autocast it is {other.dtype}"
        assert one.shape == other.shape, f"autocast: result {i} has shape {one.shape}, expected {other.shape}"


def compiled(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """torch.compile, static and dynamic, gives what the call gives."""
    require_values(op)
    leaves, spec = pytree.tree_flatten((args, kwargs))

    def run(*leaves: Any) -> list[Tensor]:
        a, k = pytree.tree_unflatten(list(leaves), spec)
        return [r * 1 if r.is_floating_point() else r for r in tensors_of(op(*a, **k))]

    expected = copies(leaves)
    want = run(*expected)
    for dynamic in (False, True):
        torch._dynamo.reset()
        given = copies(leaves)
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
            got = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=dynamic)(*given)
        what = "torch.compile with dynamic shapes" if dynamic else "torch.compile"
        close(got, want, what)
        close(given, expected, f"{what}: the arguments after the call")


CHECKS: dict[str, Callable[..., None]] = {
    "call": call,
    "fake": fake,
    "writes": writes,
    "aliases": aliases,
    "strides": strides,
    "expanded": expanded,
    "offset": offset,
    "empty": empty,
    "repeatable": repeatable,
    "threads": threads,
    "uninitialized": uninitialized,
    "gradients": gradients,
    "second derivatives": second_derivatives,
    "forward mode": forward_mode,
    "torch.func.jvp": func_jvp,
    "torch.func.grad": func_grad,
    "vmap": vmap,
    "autocast": autocast,
    "compile": compiled,
}
