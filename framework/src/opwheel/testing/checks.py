"""What must hold for every operator, whatever its class: checks of one declared sample each.

A check is given an overload and :class:`Samples`, and raises ``AssertionError`` with what is wrong. Nothing in here
knows an operator: everything is compared with the operator's reference, with a loop, or with the claim of its rule.
"""

from __future__ import annotations

import gc
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from opwheel.dispatch import Elementwise, Sample, Tolerance
from opwheel.dispatch.overload import Overload, as_tuple
from opwheel.testing import samples as made

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SEED = 2026


class Samples:
    """One declared sample of an operator, made anew for each use: calls may write to their arguments.

    Args:
        overload: whose sample it is.
        index: among the operator's samples.
        dtype: that the samples are asked for.
        device: of the tensors.
    """

    def __init__(self, overload: Overload, index: int, dtype: torch.dtype, device: torch.device) -> None:
        self.overload, self.index, self.dtype, self.device = overload, index, dtype, device

    def __repr__(self) -> str:
        return f"{self.overload.name}{self.sample()!r}"

    def sample(self, *, requires_grad: bool = False) -> Sample:
        """The sample, always with the same values."""
        return declared(self.overload, self.dtype, self.device, requires_grad=requires_grad)[self.index]

    def values(self, *, requires_grad: bool = False) -> tuple[Any, ...]:
        """The values of all arguments."""
        sample = self.sample(requires_grad=requires_grad)
        return self.overload.bind(sample.args, sample.kwargs)


def declared(
    overload: Overload, dtype: torch.dtype, device: torch.device, *, requires_grad: bool = False
) -> list[Sample]:
    """The samples of an operator; those of element-wise ones follow from the schema."""
    operator = overload.operator
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        if operator.samples is not None:
            return list(operator.samples(device, dtype, requires_grad))
        if not isinstance(operator.rule, Elementwise):
            return []
        shapes = ((3, 4), [(2, 3, 4), (4,), (3, 1)][: len(overload.tensor_arguments)], ())
        return [Sample(*made.arguments(overload, s, dtype, device, requires_grad=requires_grad)) for s in shapes]


def dtypes_of(overload: Overload) -> tuple[torch.dtype, ...]:
    """The dtypes of an operator's samples."""
    return overload.operator.dtypes or FLOATS


def wide_dtype(overload: Overload) -> torch.dtype:
    """The dtype of the samples that derivatives are compared in."""
    return torch.float64 if torch.float64 in dtypes_of(overload) else dtypes_of(overload)[0]


# --- how results are compared -----------------------------------------------------------------------------------------


def _kernel(overload: Overload, values: tuple[Any, ...]) -> tuple[Any, ...]:
    return as_tuple(overload.call(overload.op, values))


def _reference(overload: Overload, values: tuple[Any, ...]) -> tuple[Any, ...]:
    return as_tuple(overload.rule.decompose(overload, values))


def _tolerance(overload: Overload, dtype: torch.dtype, coarsest: float) -> Tolerance:
    declared_one = overload.operator.tolerance.get(dtype)
    if declared_one is not None:
        return declared_one
    if not (dtype.is_floating_point or dtype.is_complex):
        return Tolerance(0.0, 0.0)
    # float16 and bfloat16 are computed in float32 and rounded once; what adds up in float32 may do so in another order.
    units = 2 if dtype in (torch.float16, torch.bfloat16) else 16
    unit = max(units * torch.finfo(dtype).eps, units * coarsest)
    return Tolerance(unit, unit)


def agree(overload: Overload, what: str, got: Sequence[Any], want: Sequence[Any], coarsest: float = 0.0) -> None:
    """Compare results: dtype, shape and values, within a few units in the last place of the dtype.

    Args:
        overload: that has computed them.
        what: is compared, for the message.
        got: what was found.
        want: what was expected.
        coarsest: the relative spacing of the arguments' values, where that is larger than the results'.

    Raises:
        AssertionError: naming the result, what was found and what was expected.
    """
    assert len(got) == len(want), f"{what}: {len(got)} results, expected {len(want)}"
    for i, (one, other) in enumerate(zip(got, want, strict=True)):
        where = f"{what}: result {i}"
        assert (one is None) == (other is None), f"{where} is {one}, expected {other}"
        if one is None:
            continue
        assert one.dtype == other.dtype, f"{where} is {one.dtype}, expected {other.dtype}"
        assert one.shape == other.shape, f"{where} has shape {tuple(one.shape)}, expected {tuple(other.shape)}"
        rtol, atol = _tolerance(overload, other.dtype, coarsest)
        # What is small in a tensor may be the difference of what is large.
        atol *= max(1.0, _largest(other))
        torch.testing.assert_close(
            one.detach(), other.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=_behind(where)
        )


def _largest(tensor: Tensor) -> float:
    """The largest finite magnitude; 0 where there is none, and for what is exact."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 0.0
    magnitudes = tensor.detach().abs()
    return float(torch.where(magnitudes.isfinite(), magnitudes, 0).max())


def _coarseness_of_derivatives(dtype: torch.dtype) -> float:
    """They add up many terms; what is wrong in a formula is wrong by more than that."""
    eps: float = torch.finfo(dtype).eps
    return float(eps**0.75)


def _behind(where: str) -> Callable[[str], str]:
    return lambda text: f"{where}: {text}"


def _wide(values: Any) -> Any:
    def widened(value: Any) -> Any:
        is_narrow = isinstance(value, Tensor) and value.is_floating_point()
        return value.detach().to(torch.float64) if is_narrow else value

    return pytree.tree_map(widened, values)


def _clone(values: Any) -> Any:
    return pytree.tree_map(
        lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, Tensor) else v, values
    )


def _differentiable(overload: Overload, values: tuple[Any, ...]) -> list[Tensor]:
    return [t for t in overload.all_tensors(values) if t.requires_grad]


def _is_deterministic(overload: Overload) -> bool:
    return not overload.is_random


def _has_derivatives(overload: Overload) -> bool:
    return overload.operator.derivatives is not None and not overload.mutates and bool(overload.tensor_positions)


# --- the checks -------------------------------------------------------------------------------------------------------


def values(overload: Overload, samples: Samples) -> None:
    """The kernel's results and what it writes are the reference's, whatever the memory held before."""
    given, expected = samples.values(), samples.values()
    with uninitialized_memory_filled():
        got = _kernel(overload, given)
    want = _reference(overload, expected)
    if overload.is_random:
        assert [(t.shape, t.dtype) for t in got] == [(t.shape, t.dtype) for t in want]
        return
    if not overload.mutates:
        exact = _reference(overload, _wide(samples.values()))
        pairs = zip(want, exact, strict=True)
        want = tuple(e.to(w.dtype) if w.is_floating_point() and e.shape == w.shape else w for w, e in pairs)
        floats = [t.dtype for t in overload.all_tensors(given) if t.is_floating_point()]
        agree(overload, "values", got, want, max((torch.finfo(dtype).eps for dtype in floats), default=0.0))
    before = samples.values()
    for i in overload.tensor_positions:
        is_written = i in overload.written
        name = f"'{overload.names[i]}', which is {'' if is_written else 'not '}written to"
        after = as_tuple(tuple(given[i]) if isinstance(given[i], (list, tuple)) else given[i])
        source = expected if is_written else before
        wanted = as_tuple(tuple(source[i]) if isinstance(source[i], (list, tuple)) else source[i])
        agree(overload, name, after, wanted)


def repeatable(overload: Overload, samples: Samples) -> None:
    """The same call gives the same results, also in several threads at once."""
    if overload.is_random:
        return
    want = _kernel(overload, samples.values())
    found: list[Any] = []
    given = [samples.values() for _ in range(4)]  # not in the threads: their random numbers are the process's
    threads = [threading.Thread(target=lambda v=v: found.append(_kernel(overload, v))) for v in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads), "a call in a thread failed"
    for got in found:
        agree(overload, "in a thread", got, want)


def layouts(overload: Overload, samples: Samples) -> None:
    """Arguments with gaps, an offset or transposed: the same values, and nothing is written beside them."""
    if overload.is_random:
        return
    written = [overload.names[i] for i in overload.written]
    want = _kernel(overload, expected := samples.values())
    for name in ("sliced", "offset", "transposed"):
        rooms: list[tuple[Tensor, Tensor, Tensor]] = []

        def laid_out(value: Any, name: str = name, rooms: list[Any] = rooms) -> Any:
            return _in_room(value, name, rooms) if isinstance(value, Tensor) else value

        given = pytree.tree_map(laid_out, samples.values())
        got = _kernel(overload, given)
        agree(overload, f"{name} arguments", got, want)
        for room, mask, before in rooms:
            assert torch.equal(room[mask], before[mask]), f"{name} arguments: written outside of an argument"
        for i in overload.written:
            agree(overload, f"{name} arguments: {written}", [given[i]], [expected[i]])


def _in_room(value: Tensor, layout: str, rooms: list[Any]) -> Tensor:
    """The value as a part of a larger tensor, which is noted with a mask of what is around it."""
    sizes = [size * 2 + 1 for size in value.shape] if layout == "sliced" else list(value.shape)
    if layout == "offset":
        room = torch.full((value.numel() + 6,), _poison(value.dtype), dtype=value.dtype, device=value.device)
        view = room[3 : 3 + value.numel()].view(value.shape)
    elif layout == "sliced":
        room = torch.full(sizes, _poison(value.dtype), dtype=value.dtype, device=value.device)
        view = room[tuple(slice(1, None, 2) for _ in sizes)] if sizes else room
    else:
        room = torch.empty(list(reversed(sizes)), dtype=value.dtype, device=value.device)
        view = room.permute(*reversed(range(room.dim())))
    inside = torch.zeros_like(room, dtype=torch.bool)
    inside.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    view.copy_(value)
    before = room.clone()
    rooms.append((room, ~inside, before))
    return view


def _poison(dtype: torch.dtype) -> Any:
    return True if dtype is torch.bool else 77


def fake(overload: Overload, samples: Samples) -> None:
    """The fake kernel's results have the shape, dtype, strides and device of the real ones."""
    got = _kernel(overload, samples.values())
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def to_fake(value: Any) -> Any:
        return mode.from_tensor(value, static_shapes=True) if isinstance(value, Tensor) else value

    given = pytree.tree_map(to_fake, samples.values())
    with mode:
        guessed = _kernel(overload, given)
    assert len(got) == len(guessed), f"fake: {len(guessed)} results, expected {len(got)}"
    for i, (real, one) in enumerate(zip(got, guessed, strict=True)):
        where = f"fake: result {i}"
        assert one.dtype == real.dtype, f"{where} is {one.dtype}, the kernel's is {real.dtype}"
        assert one.dim() == real.dim(), f"{where} has {one.dim()} dimensions, the kernel's has {real.dim()}"
        for dim, (size, true) in enumerate(zip(one.shape, real.shape, strict=True)):
            assert not isinstance(size, int) or size == true, (
                f"{where} has shape {tuple(one.shape)}, the kernel's {tuple(real.shape)} (dimension {dim})"
            )
        if all(isinstance(size, int) for size in one.shape) and real.numel() > 0:
            meant = [s for s, size in zip(one.stride(), one.shape, strict=True) if size > 1]
            true_ones = [s for s, size in zip(real.stride(), real.shape, strict=True) if size > 1]
            assert meant == true_ones, f"{where} has strides {one.stride()}, the kernel's {real.stride()}"
        assert one.device == real.device, f"{where} is on {one.device}, the kernel's on {real.device}"


def opcheck(overload: Overload, samples: Samples) -> None:
    """``torch.library.opcheck``: schema, mutation, aliasing, fake kernels, AOT dispatch."""
    tests = ["test_schema", "test_faketensor"]
    can_require = _has_derivatives(overload) and _is_deterministic(overload)
    if _is_deterministic(overload) and overload.tensor_positions:
        tests.append("test_aot_dispatch_dynamic")
    args, kwargs = overload.unbind(samples.values(requires_grad=can_require))
    torch.library.opcheck(overload.op, args, kwargs, test_utils=tests)


def first_derivatives(overload: Overload, samples: Samples) -> None:
    """Gradients are those of the reference; without derivatives the call works, and going backward raises."""
    _compare_gradients(overload, samples, order=1)


def second_derivatives(overload: Overload, samples: Samples) -> None:
    """Gradients of gradients are those of the reference."""
    if not overload.is_random:
        _compare_gradients(overload, samples, order=2)


def _scalar(results: Sequence[Tensor]) -> Tensor | None:
    """A number that depends on every element of every result, on none of them linearly."""
    parts = [(r * torch.cos(r.detach() + i) + 0.1 * r * r).sum() for i, r in enumerate(results) if r.requires_grad]
    return sum(parts[1:], parts[0]) if parts else None


def _gradients(results: Sequence[Tensor], inputs: list[Tensor], order: int) -> list[Tensor | None]:
    total = _scalar(results)
    if total is None:
        return [None] * len(inputs)
    first = torch.autograd.grad(total, inputs, create_graph=order > 1, allow_unused=True)
    if order == 1:
        return list(first)
    again = _scalar([g for g in first if g is not None])
    if again is None:
        return [None] * len(inputs)
    return list(torch.autograd.grad(again, inputs, allow_unused=True))


def _compare_gradients(overload: Overload, samples: Samples, order: int) -> None:
    given = samples.values(requires_grad=True)
    inputs = _differentiable(overload, given)
    if not inputs or overload.mutates:
        return
    if not _has_derivatives(overload):
        results = [r for r in _kernel(overload, given) if r.requires_grad]
        for result in results:
            _raises(RuntimeError, "not differentiable", result.sum().backward)
        return
    if overload.is_random:
        for gradient in _gradients(_kernel(overload, given), inputs, 1):
            assert gradient is not None, "a random operator's gradient is missing"
        return
    other = samples.values(requires_grad=True)
    others = _differentiable(overload, other)
    fixed = overload.operator.not_differentiable
    names = overload.result_names
    expected = [r.detach() if n in fixed else r for n, r in zip(names, _reference(overload, other), strict=True)]
    got = _gradients(_kernel(overload, given), inputs, order)
    want = _gradients(expected, others, order)
    zeros = [torch.zeros_like(x) for x in inputs]
    agree(
        overload,
        f"{['first', 'second'][order - 1]} derivatives by tensor",
        [z if g is None else g for g, z in zip(got, zeros, strict=True)],
        [z if g is None else g for g, z in zip(want, zeros, strict=True)],
        _coarseness_of_derivatives(wide_dtype(overload)),
    )


def _only_floats(overload: Overload, values: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    """A function of the plain floating-point tensors alone that gives the differentiable results, and these tensors."""
    positions = [
        i for i in overload.tensor_positions if isinstance(values[i], Tensor) and values[i].is_floating_point()
    ]

    def of(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = list(values)
        for i, one in zip(positions, tensors, strict=True):
            given[i] = one
        fixed = overload.operator.not_differentiable
        results = zip(overload.result_names, as_tuple(function(overload, tuple(given))), strict=True)
        return tuple(r for name, r in results if name not in fixed and r.is_floating_point())

    return of, tuple(values[i] for i in positions)


def forward_mode(overload: Overload, samples: Samples) -> None:
    """Forward-mode derivatives are those of the reference."""
    if not _has_derivatives(overload) or overload.is_random:
        return
    given = samples.values()
    mine, inputs = _only_floats(overload, given, _kernel)
    theirs, _ = _only_floats(overload, given, _reference)
    if not inputs or not mine(*inputs):
        return
    tangents = tuple(torch.cos(x) for x in inputs)
    got, want = torch.func.jvp(mine, inputs, tangents), torch.func.jvp(theirs, inputs, tangents)
    agree(overload, "forward mode: values", got[0], want[0])
    agree(overload, "forward mode: tangents", got[1], want[1])


def functional_transforms(overload: Overload, samples: Samples) -> None:
    """``torch.func``: vjp, vmap of grad, grad of vmap, and forward over reverse are those of the reference."""
    if not _has_derivatives(overload) or overload.is_random:
        return
    given = samples.values()
    mine, inputs = _only_floats(overload, given, _kernel)
    theirs, _ = _only_floats(overload, given, _reference)
    if not inputs or not mine(*inputs):
        return
    every = tuple(range(len(inputs)))
    stacked = tuple(torch.stack([x, 0.5 * x]) for x in inputs)

    def total(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: sum((r * torch.cos(r)).sum() for r in function(*xs))

    forms: dict[str, Callable[[Callable[..., Any]], Any]] = {
        "grad": lambda f: torch.func.grad(total(f), every)(*inputs),
        "vmap of grad": lambda f: torch.vmap(torch.func.grad(total(f), every))(*stacked),
        "grad of vmap": lambda f: torch.func.grad(lambda *x: torch.vmap(total(f))(*x).sum(), every)(*stacked),
        "jvp of grad": lambda f: torch.func.jvp(torch.func.grad(total(f), every), inputs, inputs)[1],
    }
    for name, form in forms.items():
        agree(overload, name, form(mine), form(theirs))


def vmap(overload: Overload, samples: Samples) -> None:
    """``vmap`` over each tensor alone, over all, along the first and the last dimension: the same as a loop."""
    if overload.is_random or overload.operator.fake is not None or not overload.tensor_positions:
        return
    given = samples.values()
    positions = [i for i in overload.tensor_positions if isinstance(given[i], Tensor)]
    choices = [(i,) for i in positions] + ([tuple(positions)] if len(positions) > 1 else [])
    for chosen in choices:
        if overload.mutates and not set(overload.written) <= set(chosen):
            continue
        for at_end in (False, True):
            _vmap_as_loop(overload, given, chosen, at_end)
    _vmap_over_own_dimensions(overload, given, positions)


def _batch(value: Tensor, index: int) -> Tensor:
    """Another value for the second example, of the same kind."""
    return value.flip(0) * (1 if not value.is_floating_point() else 0.75) if index and value.dim() else value.clone()


def _vmap_as_loop(overload: Overload, given: tuple[Any, ...], chosen: tuple[int, ...], at_end: bool) -> None:
    examples = []
    for index in range(2):
        example = list(given)
        for i in chosen:
            example[i] = _batch(given[i], index).to(given[i].dtype)
        examples.append(tuple(example))
    batched = list(given)
    places = {i: given[i].dim() if at_end else 0 for i in chosen}
    dims = [places.get(i) for i in range(len(given))]
    for i in chosen:
        batched[i] = torch.stack([example[i] for example in examples], dim=places[i])
    names = ", ".join(overload.names[i] for i in chosen)
    got = _vmapped(overload, tuple(batched), dims)
    want = [_kernel(overload, example) for example in examples]
    agree(
        overload,
        f"vmap over {names}{' at the end' * at_end}",
        got,
        tuple(torch.stack(p) for p in zip(*want, strict=True)),
    )
    for i in overload.written:
        one = torch.stack([example[i] for example in examples], dim=places[i])
        agree(overload, f"vmap over {names}: what is written", [batched[i]], [one])


def _vmapped(overload: Overload, batched: tuple[Any, ...], dims: Sequence[int | None]) -> tuple[Any, ...]:
    positions = [i for i, dim in enumerate(dims) if dim is not None]

    def of(*tensors: Tensor) -> Any:
        values = list(batched)
        for i, one in zip(positions, tensors, strict=True):
            values[i] = one
        results = overload.call(overload.op, tuple(values))
        return () if results is None else results

    results = torch.vmap(of, in_dims=tuple(dims[i] for i in positions))(*(batched[i] for i in positions))
    return as_tuple(results)


def _vmap_over_own_dimensions(overload: Overload, given: tuple[Any, ...], positions: list[int]) -> None:
    """A dimension that the tensors have, taken as the batch, where the reference can be called without it."""
    for i in positions:
        value = given[i]
        for dim in range(value.dim()):
            if value.shape[dim] == 0 or overload.mutates:
                continue
            others = [(*given[:i], value.select(dim, k), *given[i + 1 :]) for k in range(value.shape[dim])]
            try:
                want = [_reference(overload, other) for other in others]
            except Exception:  # noqa: S112  # the operator needs that dimension
                continue
            if value.dim() == 1 and not isinstance(overload.rule, Elementwise):
                continue  # PyTorch batches some operators on tensors without dimensions in other ways
            dims: list[int | None] = [None] * len(given)
            dims[i] = dim
            got = _vmapped(overload, given, dims)
            stacked = tuple(torch.stack(parts) for parts in zip(*want, strict=True))
            agree(overload, f"vmap over dimension {dim} of {overload.names[i]}", got, stacked)


def autocast(overload: Overload, samples: Samples) -> None:
    """Under ``torch.autocast`` a call is that with arguments cast by the declared policy."""
    if overload.mutates or overload.is_random or not overload.tensor_positions:
        return
    kind = samples.device.type
    given = samples.values()
    lower = torch.bfloat16
    floats = [t for t in overload.all_tensors(given) if t.is_floating_point() and t.dtype is not torch.float64]
    policy = overload.operator.autocast
    target = torch.float32 if policy == "float32" else lower
    if policy == "promote" and any(t.dtype is not lower for t in floats):
        target = torch.float32
    cast = pytree.tree_map(lambda v: v.to(target) if any(v is t for t in floats) else v, given)
    want = _kernel(overload, cast)
    with torch.autocast(kind, dtype=lower):
        got = _kernel(overload, given)
    agree(overload, "autocast", got, want)


def compiled(overload: Overload, samples: Samples) -> None:
    """``torch.compile`` (graph and AOT autograd; static and dynamic) and ``torch.export`` compute the same."""
    if overload.is_random:
        return

    def call(*leaves: Any) -> Any:
        results = overload.call(overload.op, pytree.tree_unflatten(leaves, spec))
        return [r * 1 for r in as_tuple(results)]

    requires_grad = _has_derivatives(overload)
    _, spec = pytree.tree_flatten(samples.values())
    want_values = samples.values(requires_grad=requires_grad)
    want = call(*pytree.tree_leaves(want_values))
    for dynamic in (False, True):
        torch._dynamo.reset()
        given = samples.values(requires_grad=requires_grad)
        function = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            got = function(*pytree.tree_leaves(given))
        agree(overload, f"compiled{', dynamic shapes' * dynamic}", got, want)
        for i in overload.written:
            agree(overload, "compiled: what is written", [given[i]], [want_values[i]])
        inputs, others = _differentiable(overload, given), _differentiable(overload, want_values)
        if requires_grad and inputs and any(r.requires_grad for r in want):
            mine = _gradients(got, inputs, 1)
            theirs = _gradients(call(*pytree.tree_leaves(want_values)), others, 1)
            agree(overload, "compiled: gradients", mine, theirs)


def shardings(overload: Overload, samples: Samples) -> None:
    """What the rule lets DTensor compute without communication gives, part by part, the whole result."""
    from torch.distributed.tensor import Replicate, Shard

    if overload.is_random or overload.is_out or not overload.tensor_positions:
        return
    given = samples.values()
    specs = {i: _spec(given[i]) for i in overload.tensor_positions if given[i] is not None}
    want = _kernel(overload, given)
    for outputs, inputs in overload.rule.shardings(overload, specs):
        flat, spec = pytree.tree_flatten(samples.values())
        tensors = iter([p for p in inputs if p is not None])
        placements = [next(tensors, Replicate()) if isinstance(v, Tensor) else None for v in flat]
        counts = {v.shape[p.dim] for v, p in zip(flat, placements, strict=True) if isinstance(p, Shard)}
        if len(counts) != 1 or min(counts) < 2:
            continue  # nothing is sharded, or there is nothing to share
        parts = []
        for k in range(2):
            mine = [
                v.tensor_split(2, p.dim)[k] if isinstance(p, Shard) else v
                for v, p in zip(flat, placements, strict=True)
            ]
            parts.append(_kernel(overload, pytree.tree_unflatten(mine, spec)))
        joined = [
            torch.cat([part[i] for part in parts], placement.dim) if isinstance(placement, Shard) else parts[0][i]
            for i, placement in enumerate(outputs)
        ]
        agree(overload, f"sharded {inputs} -> {outputs}", joined, want)


class _Whole:
    """In the place of a DTensorSpec: a tensor that is whole on every process."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.ndim, self.placements = tensor.shape, tensor.dim(), ()


def _spec(value: Any) -> Any:
    return tuple(map(_spec, value)) if isinstance(value, (list, tuple)) else _Whole(value)


def versions(overload: Overload, samples: Samples) -> None:
    """What is written to counts as modified, and nothing else does."""
    given = samples.values()
    tensors = {i: t for i in overload.tensor_positions for t in overload.all_tensors(given) if t is given[i]}
    before = {i: t._version for i, t in tensors.items()}
    _kernel(overload, given)
    for i, t in tensors.items():
        is_written = i in overload.written
        assert (t._version > before[i]) == is_written, (
            f"the version counter of '{overload.names[i]}' went from {before[i]} to {t._version}, but it is "
            f"{'' if is_written else 'not '}written to"
        )


def aliases(overload: Overload, samples: Samples) -> None:
    """Results are new tensors: neither arguments nor one another."""
    given = samples.values()
    results = _kernel(overload, given)
    memory = [t.untyped_storage()._cdata for t in (*overload.all_tensors(given), *results) if t.numel()]
    distinct = len({t.untyped_storage()._cdata for t in overload.all_tensors(given) if t.numel()})
    assert len(set(memory)) == distinct + sum(r.numel() > 0 for r in results), "a result shares memory"


def freed(overload: Overload, samples: Samples) -> None:
    """Nothing is kept once results and gradients are gone."""
    given = samples.values(requires_grad=_has_derivatives(overload))
    results = _kernel(overload, given)
    if any(r.requires_grad for r in results):
        sum(r.sum() for r in results if r.requires_grad).backward()
    watched = [weakref.ref(t) for t in (*overload.all_tensors(given), *results)]
    del given, results
    gc.collect()
    assert not any(ref() is not None for ref in watched), "a tensor of the call is still alive after it"


def errors(overload: Overload, samples: Samples) -> None:
    """What is declared to be refused is refused, by the kernel and by the fake kernel."""
    if overload.operator.errors is None or samples.index > 0:
        return
    for one in overload.operator.errors(samples.device):
        _raises(one.error, one.match, partial(overload.op, *one.sample.args, **one.sample.kwargs))


def _raises(error: type[Exception] | tuple[type[Exception], ...], match: str, call: Callable[[], Any]) -> None:
    expected = " or ".join(one.__name__ for one in (error if isinstance(error, tuple) else (error,)))
    raised: Exception | None = None
    try:
        call()
    except Exception as one:
        raised = one
    assert raised is not None, f"raised nothing, expected {expected}"
    assert isinstance(raised, error), f"raised {type(raised).__name__}: {raised}, expected {expected}"
    assert re.search(match, str(raised)), f"raised {raised!r}, expected a message with {match!r}"


@contextmanager
def uninitialized_memory_filled() -> Iterator[None]:
    """New tensors hold nan, or the largest number, until they are written to."""
    settings: Any = torch.utils.deterministic
    was, fill = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(was)
            settings.fill_uninitialized_memory = fill


Check = Callable[[Overload, Samples], None]

# In every dtype of the samples, and in one where derivatives are compared.
IN_EVERY_DTYPE: dict[str, Check] = {
    "values": values,
    "layouts": layouts,
    "fake": fake,
}
IN_ONE_DTYPE: dict[str, Check] = {
    "repeatable": repeatable,
    "aliases": aliases,
    "versions": versions,
    "freed": freed,
    "errors": errors,
    "opcheck": opcheck,
    "second derivatives": second_derivatives,
    "first derivatives": first_derivatives,
    "forward mode": forward_mode,
    "torch.func": functional_transforms,
    "vmap": vmap,
    "autocast": autocast,
    "shardings": shardings,
    "compiled": compiled,
}
CHECKS = IN_EVERY_DTYPE | IN_ONE_DTYPE


def dtypes_for(overload: Overload, check: str) -> tuple[torch.dtype, ...]:
    """The dtypes of the samples that a check is made with."""
    if check in IN_EVERY_DTYPE:
        return dtypes_of(overload)
    return dtypes_of(overload)[:1] if check == "autocast" else (wide_dtype(overload),)


def cases(overload: Overload, device: torch.device) -> Iterator[tuple[str, Samples]]:
    """Every check with every sample that it is made with."""
    for name in CHECKS:
        for dtype in dtypes_for(overload, name):
            for index in range(len(declared(overload, dtype, device))):
                yield name, Samples(overload, index, dtype, device)
