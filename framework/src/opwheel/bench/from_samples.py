"""Measures operators with the samples that they declare: beside their reference, eager and compiled, and their peers.

For libraries without a suite of their own. Under ``torch.func`` the reference runs in the kernel's place
(docs/writing-an-operator.md): what that costs is a column as well.
"""

from __future__ import annotations

import itertools
import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..dispatch import Sample
from ..dispatch.overload import Overload, as_tuple
from ..process_memory import give_back, peak
from . import triad
from .results import Measurement, Results, Row
from .sampling import Precision, clock_for, sample
from .suite import Form
from .unavailable import UnavailableError

OURS = "operator"
REFERENCE = "reference"
COMPILED = "reference, compiled"
FUNCTIONAL = "torch.func.vjp"
TRIAD = "triad"
"""The limit of out variants on a CPU: a hand-written loop, a * b + c of float32, that moves as many bytes."""
MEASURED = "measured"


@dataclass(frozen=True)
class Case:
    """One sample of one operator."""

    overload: Overload
    index: int
    form: Form
    dtype: torch.dtype
    is_measured: bool = False
    """Of what the operator declares to be measured, and not of its samples."""

    @property
    def layout(self) -> str:
        """Which call of the operator's."""
        return f"{MEASURED if self.is_measured else 'sample'} {self.index}"

    @property
    def name(self) -> str:
        """Identifies the case in files; stable between versions."""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.overload.name}/{self.form.value}/{self.layout}/{dtype}"

    def sample(self, device: str, requires_grad: bool) -> Sample:
        """The call's arguments."""
        operator = self.overload.operator
        make = operator.measured if self.is_measured else operator.samples
        assert make is not None
        return next(itertools.islice(make(device, self.dtype, requires_grad), self.index, None))


def cases(
    overloads: Iterable[Overload], device: str, groups: Iterable[str] = (), *, quick: bool = False
) -> Iterator[Case]:
    """What the operators (``groups``: those alone) declare to be measured, or else their samples in a first dtype.

    Where some declare what is to be measured, the others' samples are made for tests, and left out unless they are
    asked for. ``quick``: the first sample of each.
    """
    chosen = set(groups)
    overloads = list(overloads)
    if not chosen and not quick and any(one.operator.measured is not None for one in overloads):
        overloads = [one for one in overloads if one.operator.measured is not None]
    for overload in overloads:
        operator = overload.operator
        if operator.samples is None or overload.name != operator.name or (chosen and operator.name not in chosen):
            continue
        is_measured = operator.measured is not None and not quick
        make = operator.measured if operator.measured is not None and not quick else operator.samples
        dtypes = operator.dtypes or (torch.float32, torch.bfloat16)
        forms = [Form.NEW]
        if operator.derivatives is not None and not overload.mutates and not overload.is_random:
            forms.append(Form.BACKWARD)
        for dtype, form in itertools.product(dtypes if is_measured else dtypes[:1], forms):
            found = make(device, dtype, form is Form.BACKWARD)
            for index, _ in enumerate(itertools.islice(found, 1 if quick else None)):
                yield Case(overload, index, form, dtype, is_measured)


def run(case: Case, device: str, precision: Precision, results: Results, skip: Iterable[str] = ()) -> None:
    """Measure one case; one whose results differ from the reference's is a finding and not timed."""
    overload, operator = case.overload, case.overload.operator
    requires_grad = case.form is Form.BACKWARD
    torch.manual_seed(0)
    one = case.sample(device, requires_grad)
    values = overload.bind(one.args, one.kwargs)
    inputs = [tensor for tensor in overload.all_tensors(values) if tensor.requires_grad]
    if requires_grad and not inputs:
        return

    def reference(*values: Any) -> Any:
        return overload.rule.decompose(overload, values)

    def kernel(*values: Any) -> Any:
        return overload.call(overload.op, values)

    found = as_tuple(kernel(*values))
    expected = () if overload.mutates else as_tuple(reference(*values))
    problem = None if overload.mutates else _difference(case, found, expected)
    if problem:
        results.findings.append(f"{case.name}: {problem}; it is not timed")
        return
    torch.compiler.reset()  # all cases share this function's code, of which PyTorch compiles eight variants at most
    compiled = torch.compile(reference, dynamic=False)
    ways: dict[str, Callable[[], Any]] = {
        OURS: lambda: kernel(*values),
        REFERENCE: lambda: reference(*values),
        COMPILED: lambda: compiled(*values),
    }
    for name, peer in operator.peers.items():
        problem = None if name in skip else _of_peer(case, partial(overload.call, peer, values), expected)
        if problem:
            results.notes.append(f"{name} is left out of {case.name}: {problem}")
        else:
            ways[name] = partial(overload.call, peer, values)
    if requires_grad:
        ways = {name: _with_backward(way, inputs) for name, way in ways.items()}
        if all(value is None or not isinstance(value, (list, tuple)) for value in values):
            ways[FUNCTIONAL] = _functional(kernel, values)
    moved = sum(t.numel() * t.element_size() for t in (*overload.all_tensors(values), *found))
    if case.is_measured and device == "cpu" and overload.name.endswith(".out") and TRIAD not in skip:
        try:
            ways[TRIAD] = _triad(moved)
        except UnavailableError as error:
            results.notes.append(f"{TRIAD} is left out of {case.name}: {error}")
    timers = {}
    for name, way in ways.items():
        if name in skip:
            continue
        try:
            way()
        except Exception as error:  # compilers raise what they like
            results.notes.append(f"{name} is left out of {case.name}: {str(error).strip().partition(chr(10))[0]}")
        else:
            timers[name] = timeit.Timer(way)
    elements = max((t.numel() for t in (*overload.all_tensors(values), *found)), default=0)
    peers = {}
    give_back()  # of earlier cases and of the comparison above, so that each case begins with the same allocators
    for name, samples in sample(timers, clock_for(device), precision).items():
        lower, median, upper = samples.quartiles()
        most = peak(ways[name]) if case.is_measured and device == "cpu" else None
        peers[name] = Measurement(
            median, lower, upper, len(samples.seconds), samples.calls, moved, f"{one!r}", peak_bytes=most
        )
    dtype = str(case.dtype).removeprefix("torch.")
    row = Row(case.name, overload.name, case.form.value, case.layout, dtype, elements, peers)
    results.rows.append(row)


def measured_rows(results: Results, form: Form) -> list[Row]:
    """The rows of what operators declare to be measured; of their samples where none does."""
    rows = [row for row in results.rows if row.form == form.value]
    return [row for row in rows if row.layout.startswith(MEASURED)] or rows


def compared_with(row: Row) -> str:
    """The peer that users would call instead: the first that the operator declares, else the reference."""
    return next((name for name in row.peers if name not in (OURS, REFERENCE, COMPILED, FUNCTIONAL, TRIAD)), REFERENCE)


def _difference(case: Case, found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str | None:
    if case.overload.is_random:
        return None
    unit = torch.finfo(case.dtype).eps if case.dtype.is_floating_point else 0.0
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        declared = case.overload.operator.tolerance.get(other.dtype)
        rtol, atol = declared or (64 * unit, 64 * unit)
        if one.shape != other.shape or not torch.allclose(one.double(), other.double(), rtol, atol, equal_nan=True):
            return f"result {i} differs from the reference's"
    return None


def _of_peer(case: Case, peer: Callable[[], Any], expected: tuple[Tensor, ...]) -> str | None:
    """What is wrong with a peer's results, or with calling it."""
    try:
        found = as_tuple(peer())
    except Exception as error:  # whatever a third party raises
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    if case.overload.mutates:
        return None
    if len(found) != len(expected):
        return f"it has {len(found)} results, the reference has {len(expected)}"
    return _difference(case, found, expected)


class _Arriving:
    """Gradients of results. The first call makes them, and it is not timed: they are another operator's work."""

    def __init__(self) -> None:
        self._gradients: tuple[Tensor, ...] = ()

    def at(self, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self._gradients = self._gradients or tuple(torch.ones_like(result) for result in results)
        return self._gradients


def _with_backward(way: Callable[[], Any], inputs: list[Tensor]) -> Callable[[], Any]:
    arriving = _Arriving()

    def forward_and_backward() -> Any:
        results = tuple(result for result in as_tuple(way()) if result.requires_grad)
        return torch.autograd.grad(results, inputs, arriving.at(results), allow_unused=True)

    return forward_and_backward


def _triad(moved: int) -> Callable[[], Any]:
    a, b, out = (torch.ones(max(1, moved // 12)) for _ in range(3))
    return partial(triad.prepare(a, b, 1.5, out), out)


def _functional(kernel: Callable[..., Any], values: tuple[Any, ...]) -> Callable[[], Any]:
    positions = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.is_floating_point()]
    tensors = [values[i].detach() for i in positions]

    def of(*given: Tensor) -> tuple[Tensor, ...]:
        every = list(values)
        for i, one in zip(positions, given, strict=True):
            every[i] = one
        return tuple(result for result in as_tuple(kernel(*every)) if result.is_floating_point())

    arriving = _Arriving()

    def forward_and_backward() -> Any:
        pulled: Any = torch.func.vjp(of, *tensors)
        results, pull_back = pulled
        return pull_back(arriving.at(results))

    return forward_and_backward
