"""Times a case: what computes it takes turns."""

from __future__ import annotations

import timeit
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import torch
from opwheel_tools.bench.sampling import Clock, Precision, sample
from torch import Tensor

from .cases import OPERATORS, Case, Load, Make, Statement
from .device import Call, Device

CALLS_IN_GRAPH = 20  # of small cases: launching a graph takes as long as a few of their kernels
FORWARD = "forward"
Statistics = list[float]
"""Lower quartile, median and upper quartile of the seconds of a call."""


@dataclass
class Turns:
    """What takes turns, with inputs of its own each, because some overwrite them."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    """For each a call for each of its inputs."""
    errors: dict[str, str] = field(default_factory=dict)
    """Why others take no part."""
    off: dict[str, float] = field(default_factory=dict)
    """How far results are from those of eager PyTorch: of the distance's norm, and theirs."""
    moved: int | None = None
    """Bytes that have to be read or written."""


def statements(case: Case, names: Collection[str], compiler: str) -> dict[str, Load]:
    """What computes a case, of the names that are asked for; eager PyTorch first, as others are compared with it."""
    operator = OPERATORS[case.operator]
    compiled = partial(torch.compile, operator.eager, dynamic=False, backend=compiler)
    known: dict[str, Load] = {"eager": lambda: operator.eager, "ours": operator.ours, **operator.others}
    return {name: load for name, load in (known | {"compile": compiled}).items() if name in names}


def prepare(case: Case, form: str, loads: Mapping[str, Load], device: Device) -> Turns:
    """Call each of them once."""
    torch.compiler.reset()  # each case is compiled for its own sizes, of which a function may have a few only
    turns = Turns()
    expected: list[Tensor] = []
    for name, load in loads.items():
        try:
            inputs = _inputs(case, form, device)
            calls = [_call(load(), one, form) for one in inputs]
            result = calls[0]()
            results = _tensors(result) or _floating(inputs[0])  # in place
            if name == "eager":
                expected = results
                turns.moved = _moved(case, form, inputs[0], result)
            elif expected:
                turns.off[name] = _off(results, expected)
            turns.calls[name] = calls
        except Exception as error:  # whatever one of them raises, the others are measured
            turns.errors[name] = f"{type(error).__name__}: {error}"[:1000]
            try:
                device.synchronize()
            except RuntimeError as failed:  # after a kernel that fails the process is of no use
                raise SystemExit(f"{name}: {turns.errors[name].splitlines()[0]}") from failed
    if turns.moved is not None and not case.is_small:
        turns.calls["copy"] = _copies(turns.moved // 2, device)
    return turns


def measure(case: Case, form: str, loads: Mapping[str, Load], device: Device, precision: Precision) -> dict[str, Any]:
    """Its row of the results."""
    with torch.set_grad_enabled(form != FORWARD):
        turns = prepare(case, form, loads, device)
        rotating = {name: _rotating(calls) for name, calls in turns.calls.items()}
        seconds = {"wall": _sampled(rotating, device.clock, precision)}
        if case.is_small:
            seconds["host"] = _sampled(rotating, device.host_clock, precision)
        row: dict[str, Any] = {}
        if device.is_gpu:
            seconds["device"], row["not_captured"] = _device_seconds(case, turns, device, precision)
        if device.is_gpu and not case.is_small:
            row["peak_bytes"] = {name: device.peak_bytes(call) for name, call in rotating.items() if name != "copy"}
    return row | {
        "operator": case.operator,
        "size": case.size,
        "group": case.group,
        "form": form,
        "dtype": str(case.dtype).removeprefix("torch."),
        "bytes": turns.moved,
        "seconds": seconds,
        "off": turns.off,
        "errors": turns.errors,
    }


def profiled(case: Case, form: str, loads: Mapping[str, Load], device: Device) -> dict[str, Statistics]:
    """How long kernels of calls that cannot be captured take, by the profiler, which makes later launches slower."""
    with torch.set_grad_enabled(form != FORWARD):
        turns = prepare(case, form, loads, device)
        calls = {name: _rotating(turns.calls[name]) for name in loads if name in turns.calls}
        return {name: 3 * [device.busy_seconds(call)] for name, call in calls.items()}


def _device_seconds(
    case: Case, turns: Turns, device: Device, precision: Precision
) -> tuple[dict[str, Statistics], dict[str, str]]:
    """Of replayed graphs; and why other calls cannot be captured."""
    times = CALLS_IN_GRAPH if case.is_small else 1
    replays: dict[str, Call] = {}
    reasons: dict[str, str] = {}
    for name, calls in turns.calls.items():
        try:
            replays[name] = device.captured(calls, times)
        except RuntimeError as error:
            reasons[name] = str(error).splitlines()[0]
            device.synchronize()
    found = _sampled(replays, device.clock, precision)
    calls_in = {name: times * len(turns.calls[name]) for name in found}
    return {name: [one / calls_in[name] for one in seconds] for name, seconds in found.items()}, reasons


def _sampled(calls: Mapping[str, Call], clock: Clock, precision: Precision) -> dict[str, Statistics]:
    timers = {name: timeit.Timer(call) for name, call in calls.items()}
    return {name: list(one.quartiles()) for name, one in sample(timers, clock, precision).items()}


def _inputs(case: Case, form: str, device: Device) -> list[tuple[Tensor, ...]]:
    """The same numbers in every call of this function; several inputs where one alone would stay in the cache."""
    torch.manual_seed(0)
    make = Make(device.name, case.dtype, requires_grad=form != FORWARD)
    first = case.inputs(make)
    sets = 1 if case.is_small else device.sets(sum(one.nbytes for one in first))
    return [first, *(case.inputs(make) for _ in range(sets - 1))]


def _call(statement: Statement, inputs: tuple[Tensor, ...], form: str) -> Call:
    """The statement, or its results' gradients; what arrives at the results is made by the first call."""
    if form == FORWARD:
        return partial(statement, *inputs)
    leaves = [one for one in inputs if one.requires_grad]
    arriving: list[Tensor] = []

    def forward_and_backward() -> tuple[Tensor, ...]:
        results = [one for one in _floating(statement(*inputs)) if one.requires_grad]
        if not arriving:
            arriving.extend(map(_arriving, results))
        return torch.autograd.grad(results, leaves, arriving)

    return forward_and_backward


def _arriving(result: Tensor) -> Tensor:
    """A loss is the last operator, which Liger-Kernel's asks for. Other numbers are the same in every layout."""
    make = torch.randn if result.ndim else torch.ones
    return make(result.shape, device=result.device, dtype=result.dtype)


def _copies(size: int, device: Device) -> list[Call]:
    """Copies of so many bytes: they read and write them."""
    pairs = [torch.zeros(2, size, dtype=torch.uint8, device=device.name) for _ in range(device.sets(2 * size))]
    return [partial(to.copy_, source) for to, source in pairs]


def _rotating(calls: list[Call]) -> Call:
    """The next of the calls each time."""
    if len(calls) == 1:
        return calls[0]
    following = cycle(calls).__next__
    return lambda: following()()


def _moved(case: Case, form: str, inputs: tuple[Tensor, ...], result: Any) -> int | None:
    """Bytes of a forward call whose time they decide."""
    operator = OPERATORS[case.operator]
    if form != FORWARD or not operator.is_memory_bound:
        return None
    if operator.moved is not None:
        return operator.moved(*inputs)
    return sum({one.data_ptr(): one.nbytes for one in (*inputs, *_tensors(result))}.values())


def _off(results: list[Tensor], expected: list[Tensor]) -> float:
    """The largest distance of a result from the expected one, relative to the norm of that."""
    pairs = [(one.detach().float(), other.detach().float()) for one, other in zip(results, expected, strict=False)]
    return max(float((one - other).norm() / other.norm().clamp(min=1e-30)) for one, other in pairs)


def _tensors(result: Any) -> list[Tensor]:
    return [one for one in (result if isinstance(result, tuple) else (result,)) if isinstance(one, Tensor)]


def _floating(result: Any) -> list[Tensor]:
    return [one for one in _tensors(result) if one.is_floating_point()]
