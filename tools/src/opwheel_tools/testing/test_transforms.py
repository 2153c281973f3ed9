"""The rest of PyTorch around an operator: vmap, autocast, compile, export, tracing, fake tensors, modes."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from opwheel._torch import private
from opwheel.dispatch import decomposition_table
from opwheel.dispatch.autocast import KEYS
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.tensor_iterator import decompose
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from . import reference
from .checks.agreement import cloned
from .checks.tracing import agrees_under_autocast
from .samples import ALIASES, arguments


def functionally(overload: Overload) -> Callable[..., Any]:
    """A call that leaves its arguments alone, whatever the variant."""
    op = overload.op
    if overload.is_out:
        return lambda *args: op(*args, out=torch.empty_like(args[0]))
    if overload.is_in_place:
        return lambda first, *rest: op(first.clone(), *rest)
    return lambda *args: op(*args)


class Module(torch.nn.Module):
    """The call as a module."""

    def __init__(self, overload: Overload, args: tuple[Any, ...]) -> None:
        super().__init__()
        self.overload = overload
        self.numbers = [value for value in args if not isinstance(value, Tensor)]

    def forward(self, *tensors: Tensor) -> Any:
        given, numbers = iter(tensors), iter(self.numbers)
        names = self.overload.arguments
        args = [next(given) if name in self.overload.tensor_arguments else next(numbers) for name in names]
        return functionally(self.overload)(*args)


class Call(torch.nn.Module):
    """A module as users write them: it finds the operator by name when it is called."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__()
        self.namespace, self.name = namespace, name

    def forward(self, *args: Any) -> Any:
        base, _, variant = self.name.partition(".")
        op = getattr(getattr(getattr(torch.ops, self.namespace), base), variant or "default")
        if variant:
            return op(*args, out=torch.empty_like(args[0]))
        return op(args[0].clone(), *args[1:]) if base.endswith("_") else op(*args)


# PyTorch's check of how autograd is registered does not know other devices than these.
_EVERYWHERE = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
OPCHECKS = {True: (*_EVERYWHERE, "test_autograd_registration"), False: _EVERYWHERE}


@pytest.mark.takes_long
@pytest.mark.device_independent
@pytest.mark.subsystem("opcheck")
def test_opcheck(overload: Overload, dtype: torch.dtype, device: torch.device) -> None:
    for layouts in (("contiguous",), ("transposed", "sliced")):
        for grad in (False, True):
            if grad and overload.is_out:
                continue
            args = arguments(overload, (3, 4), dtype, device, layouts=layouts, requires_grad=grad)
            if overload.is_in_place:
                args = (args[0].clone(), *args[1:])
            kwargs = {"out": torch.empty((3, 4), dtype=dtype, device=device)} if overload.is_out else {}
            torch.library.opcheck(overload.op, args, kwargs, test_utils=OPCHECKS[device.type in KEYS])


@pytest.mark.subsystem("autocast")
def test_autocast(functional: Overload, device: torch.device) -> None:
    if device.type not in KEYS:
        pytest.skip(f"autocast has no rules for {device.type}")
    half, single, double = (
        arguments(functional, (3, 4), t, device) for t in (torch.bfloat16, torch.float32, torch.float64)
    )
    mixed = (half[0], *single[1:])
    for given in (half, single, mixed, double):
        values = functional.bind(given, {})
        agrees_under_autocast(functional, partial(cloned, values), device.type, torch.bfloat16)
    if not isinstance(functional.operator.autocast, str):
        return  # dtypes of results depend on those of each argument
    promoted = functional.operator.autocast == "promote"
    expected = {
        "promote": (torch.bfloat16, torch.float32, torch.float32),
        "lower_precision": (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        "float32": (torch.float32, torch.float32, torch.float32),
    }[functional.operator.autocast]
    with torch.autocast(device.type, dtype=torch.bfloat16):
        if promoted and len(functional.tensor_arguments) == 1:
            mixed = single
        for args, dtype in zip((half, single, mixed), expected, strict=True):
            assert reference.as_tuple(functional.op(*args))[0].dtype is dtype
        assert reference.as_tuple(functional.op(*double))[0].dtype is torch.float64
    assert reference.as_tuple(functional.op(*half))[0].dtype is torch.bfloat16


def inductor_lacks(device: torch.device) -> str:
    """What inductor needs for the device and does not find."""
    return "" if device.type == "cpu" or private.has_triton() else f"inductor needs Triton to compile for {device.type}"


@pytest.mark.subsystem("compile")
@pytest.mark.compiles
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compile(overload: Overload, compiler: str, device: torch.device) -> None:
    """One graph without breaks for every batch size, forward and backward, equal to eager."""
    if compiler == "inductor" and inductor_lacks(device):
        pytest.skip(inductor_lacks(device))
    torch._dynamo.reset()
    graphs = 0

    def count_graphs(gm: Any, example_inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend(compiler)(gm, example_inputs)

    compiled = torch.compile(functionally(overload), fullgraph=True, backend=count_graphs)
    for batch in (3, 4, 7, 9, 6):  # the last is as many as there are columns
        shapes = [(batch, 6), (6,), (batch, 1)][: len(overload.tensor_arguments)]
        args = arguments(overload, shapes, torch.float32, device, requires_grad=not overload.is_out)
        mine, theirs = reference.as_tuple(compiled(*args)), reference.as_tuple(functionally(overload)(*args))
        torch.testing.assert_close(mine, theirs)
        assert [part.stride() for part in mine] == [part.stride() for part in theirs]
        if not overload.is_out:
            torch.testing.assert_close(_gradients(mine, overload, args), _gradients(theirs, overload, args))
    assert graphs <= 2, "it recompiled for new batch sizes: once static, once dynamic is what PyTorch does"


def _gradients(results: tuple[Tensor, ...], overload: Overload, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    total = torch.stack([result.square().sum() for result in results]).sum()
    return torch.autograd.grad(total, overload.tensors(args))


@pytest.mark.subsystem("compile")
@pytest.mark.compiles
def test_compile_mutates_its_inputs(mutating: Overload, device: torch.device) -> None:
    torch._dynamo.reset()
    args = arguments(mutating, (3, 4), torch.float32, device)
    target = args[0].clone()
    compiler = "aot_eager" if inductor_lacks(device) else "inductor"
    if mutating.is_out:
        torch.compile(lambda out, *a: mutating.op(*a, out=out), backend=compiler, fullgraph=True)(target, *args)
    else:
        torch.compile(lambda out, *a: mutating.op(out, *a[1:]), backend=compiler, fullgraph=True)(target, *args)
    torch.testing.assert_close(target, decompose(mutating, args))


@pytest.mark.device_independent
@pytest.mark.subsystem("compile")
@pytest.mark.compiles
def test_compile_returns_what_it_overwrites(in_place: Overload, device: torch.device) -> None:
    """Also with gradients: what is done to the result later is done to the argument."""
    if len(in_place.tensor_arguments) == 1:
        pytest.skip("only what is overwritten could require grad")
    torch._dynamo.reset()
    args = arguments(in_place, (3, 4), torch.float32, device)
    rest = [value.requires_grad_() if isinstance(value, Tensor) else value for value in args[1:]]
    target = args[0].clone()
    assert torch.compile(lambda first: in_place.op(first, *rest), backend="aot_eager", fullgraph=True)(target) is target
    assert target.requires_grad


@pytest.mark.device_independent
@pytest.mark.subsystem("compile")
@pytest.mark.compiles
@pytest.mark.parametrize("alias", ["none", "itself", "a view"])
def test_compile_of_gradients_through_what_is_overwritten(in_place: Overload, alias: str, device: torch.device) -> None:
    """Of an input, and of a tensor that the program made."""
    args = arguments(in_place, (3, 4), torch.float64, device)

    def call(outer: Tensor) -> Tensor:
        for target in (outer, outer * 2):
            other = None if alias == "none" else ALIASES[alias](target)
            rest = [value if other is None or not isinstance(value, Tensor) else other for value in args[1:]]
            in_place.op(target, *rest)
        return target

    def gradient(function: Callable[[Tensor], Tensor]) -> Any:
        leaf = args[0].clone().requires_grad_()
        outer = leaf * 0.5
        return torch.autograd.grad(function(outer).square().sum() + outer.square().sum(), leaf)[0]

    torch._dynamo.reset()
    torch.testing.assert_close(gradient(torch.compile(call, backend="aot_eager", fullgraph=True)), gradient(call))


@pytest.mark.device_independent
@pytest.mark.subsystem("compile")
@pytest.mark.compiles
def test_compile_of_transforms(functional: Overload, device: torch.device) -> None:
    torch._dynamo.reset()
    args = arguments(functional, (4,), torch.float32, device)

    def total(first: Tensor) -> Tensor:
        results = reference.as_tuple(functional.op(first, *args[1:]))
        return torch.stack([result.square().sum() for result in results]).sum()

    for transform in (torch.func.grad, lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1]):
        compiled = torch.compile(transform(total), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(args[0]), transform(total)(args[0]))


@pytest.mark.takes_long
@pytest.mark.subsystem("export")
def test_export(functional: Overload, device: torch.device) -> None:
    args = arguments(functional, (3, 4), torch.float32, device)
    tensors = tuple(functional.tensors(args))
    module = Module(functional, args)
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(module, tensors, dynamic_shapes=(tuple({0: rows} for _ in tensors),))
    assert functional.op in [node.target for node in program.graph.nodes]
    more = tuple(torch.cat([tensor, tensor]) for tensor in tensors)
    torch.testing.assert_close(program.module()(*more), module(*more))
    decomposed = program.run_decompositions(decomposition_table([functional]))
    assert functional.op not in [node.target for node in decomposed.graph.nodes]
    torch.testing.assert_close(decomposed.module()(*more), module(*more))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(*more), module(*more))


@pytest.mark.takes_long
@pytest.mark.device_independent
@pytest.mark.subsystem("export")
def test_export_of_a_broadcast(functional: Overload, device: torch.device) -> None:
    """No condition on the number of rows, not even where there are as many as columns."""
    shapes = [(4, 4), (4,), (4, 1)][: len(functional.tensor_arguments)]
    args = arguments(functional, shapes, torch.float32, device)
    tensors = tuple(functional.tensors(args))
    rows = torch.export.Dim("rows", min=2, max=64)
    dynamic = tuple({0: rows} if tensor.dim() == 2 else {} for tensor in tensors)
    module = Module(functional, args)
    program = torch.export.export(module, tensors, dynamic_shapes=(dynamic,))
    more = tuple(torch.cat([tensor, tensor]) if tensor.dim() == 2 else tensor for tensor in tensors)
    torch.testing.assert_close(program.module()(*more), module(*more))


@pytest.mark.subsystem("functionalize")
def test_functionalize(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (3, 4), torch.float32, device)
    result = torch.func.functionalize(functionally(overload))(*args)
    torch.testing.assert_close(result, decompose(overload, args))


@pytest.mark.takes_long
@pytest.mark.device_independent
@pytest.mark.subsystem("functionalize")
def test_functionalize_refuses_a_target_that_overlaps_itself(mutating: Overload, device: torch.device) -> None:
    """What functionalization would write back is the sum of the elements that share a place."""
    args = arguments(mutating, (3, 4), torch.float32, device)

    def call(row: Tensor) -> Tensor:
        target = row.clone().expand(3, 4)
        out = {"out": target} if mutating.is_out else {}
        mutating.op(*(args if mutating.is_out else (target, *args[1:])), **out)
        return target

    for transform in (torch.func.functionalize, lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)):
        with pytest.raises(Exception, match="share one place in memory"):
            transform(call)(args[0][0])


@pytest.mark.device_independent
@pytest.mark.subsystem("functionalize")
def test_functionalize_resizes_no_part_of_a_tensor(out_variant: Overload, device: torch.device) -> None:
    args = arguments(out_variant, (3, 4), torch.float32, device)

    def call(whole: Tensor) -> Tensor:
        result: Tensor = out_variant.op(*args, out=whole[:0])
        return result

    with pytest.raises(RuntimeError, match="part of another tensor"):
        torch.func.functionalize(call)(torch.zeros(20, device=device))
    own = torch.func.functionalize(lambda: out_variant.op(*args, out=torch.empty(0, device=device)))()
    torch.testing.assert_close(own, decompose(out_variant, args), check_stride=False)


@pytest.mark.takes_long
@pytest.mark.device_independent
@pytest.mark.subsystem("jit")
def test_trace_and_save(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (3, 4), torch.float32, device)
    tensors = tuple(overload.tensors(args))
    traced = torch.jit.trace(Module(overload, args), tensors)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    torch.testing.assert_close(torch.jit.load(file)(*tensors), decompose(overload, args))


@pytest.mark.takes_long
@pytest.mark.device_independent
@pytest.mark.subsystem("jit")
def test_script(functional: Overload, device: torch.device) -> None:
    args = arguments(functional, (3, 4), torch.float32, device)
    results = "Tuple[" + ", ".join(["Tensor"] * len(functional.schema.returns)) + "]"
    types = ["Tensor" if name in functional.tensor_arguments else "float" for name in functional.arguments]
    parameters = ", ".join(f"{name}: {kind}" for name, kind in zip(functional.arguments, types, strict=True))
    source = (
        f"def call({parameters}) -> {results if len(functional.schema.returns) > 1 else 'Tensor'}:\n"
        f"    return torch.ops.{functional.namespace}.{functional.name}({', '.join(functional.arguments)})\n"
    )
    scripted = torch.jit.CompilationUnit(source)
    torch.testing.assert_close(scripted.call(*args), decompose(functional, args))


@pytest.mark.subsystem("fake tensors")
def test_fake_tensors(overload: Overload, dtype: torch.dtype, device: torch.device) -> None:
    args = arguments(overload, (2, 3, 4, 5), dtype, device, layouts=("channels_last", "contiguous"))
    expected = reference.as_tuple(functionally(overload)(*args))
    with FakeTensorMode() as mode:
        fake_args = tuple(mode.from_tensor(value) if isinstance(value, Tensor) else value for value in args)
        for fake, real in zip(reference.as_tuple(functionally(overload)(*fake_args)), expected, strict=True):
            assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
            assert fake.device.type == real.device.type


@pytest.mark.device_independent
@pytest.mark.subsystem("modes and subclasses")
def test_dispatch_mode_and_subclass(overload: Overload, device: torch.device) -> None:
    seen: list[Any] = []

    class Recording(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Tagged(Tensor):
        pass

    args = arguments(overload, (3, 4), torch.float32, device)
    with Recording():  # type: ignore[no-untyped-call]
        result = functionally(overload)(*args)
    assert overload.op in seen
    torch.testing.assert_close(result, decompose(overload, args))
    tagged = tuple(value.as_subclass(Tagged) if isinstance(value, Tensor) else value for value in args)
    results = reference.as_tuple(functionally(overload)(*tagged))
    assert all(type(part) is Tagged for part in results)


@pytest.mark.subsystem("inference mode")
def test_inference_mode(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (3, 4), torch.float32, device, requires_grad=not overload.is_in_place)
    with torch.inference_mode():
        results = reference.as_tuple(functionally(overload)(*args))
    assert all(part.is_inference() for part in results)
    torch.testing.assert_close(results, reference.as_tuple(decompose(overload, args)), check_stride=False)


@pytest.mark.device_independent
@pytest.mark.subsystem("modules")
def test_deepcopy_and_pickle(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (3, 4), torch.float32, device)
    module = Call(overload.namespace, overload.name)
    expected = decompose(overload, args)
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # our own bytes
        torch.testing.assert_close(copied(*args), expected)


@pytest.mark.subsystem("deterministic mode")
def test_deterministic_mode(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (50, 70), torch.float32, device)
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (reference.as_tuple(functionally(overload)(*args)) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.device_independent
@pytest.mark.subsystem("flop counter")
def test_flop_counter(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (3, 4), torch.float32, device)
    with FlopCounterMode(display=False) as counter:
        functionally(overload)(*args)
    flops = overload.operator.flops
    assert isinstance(flops, int)
    assert counter.get_total_flops() == 12 * len(overload.schema.returns) * flops


@pytest.mark.device_independent
@pytest.mark.subsystem("profiler")
def test_profiler_names_the_operator(overload: Overload, device: torch.device) -> None:
    args = arguments(overload, (3, 4), torch.float32, device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        functionally(overload)(*args)
    base = overload.qualified_name.partition(".")[0]
    assert base in {event.key for event in profile.key_averages()}
