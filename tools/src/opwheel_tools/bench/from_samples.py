"""Measures operators with their declared samples: against their reference, eager and compiled, and their baselines.

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
from opwheel.dispatch.overload import Overload, as_tuple
from opwheel.memory.usage import give_back, peak
from torch import Tensor

from ..opinfo import Sample
from ..opinfo.lookup import op_info_of
from . import triad
from .results import Measurement, Results, Row
from .sample_call import Function, SampleCall
from .sampling import Precision, Samples, clock_for, sample
from .suite import Form
from .unavailable import UnavailableError

OURS = "operator"
REFERENCE = "reference"
COMPILED = "reference, compiled"
FUNCTIONAL = "torch.func.vjp"
TRIAD = "triad"
"""The limit of out variants on a CPU: a hand-written loop, a * b + c of float32, that moves as many bytes."""
MEASURED = "measured"
PLACEMENTS = 7
"""So often operands are made anew where the memory is the limit, for the operator and its limit.

Which pages of memory they lie in decides up to a tenth of the time, of the triad as of the operator. All samples are
put together.
"""


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
        info = op_info_of(self.overload)
        make = info.measured if self.is_measured else info.samples
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
    infos = [(overload, op_info_of(overload)) for overload in overloads]
    if not chosen and not quick and any(info.measured is not None for _, info in infos):
        infos = [(overload, info) for overload, info in infos if info.measured is not None]
    for overload, info in infos:
        operator = overload.operator
        if info.samples is None or overload.name != operator.name or (chosen and operator.name not in chosen):
            continue
        is_measured = info.measured is not None and not quick
        make = info.measured if info.measured is not None and not quick else info.samples
        dtypes = info.dtypes or (torch.float32, torch.bfloat16)
        forms = [Form.NEW]
        if operator.derivatives is not None and not overload.mutates and not overload.is_random:
            forms.append(Form.BACKWARD)
        for dtype, form in itertools.product(dtypes if is_measured else dtypes[:1], forms):
            found = make(device, dtype, form is Form.BACKWARD)
            for index, _ in enumerate(itertools.islice(found, 1 if quick else None)):
                yield Case(overload, index, form, dtype, is_measured)


def run(case: Case, device: str, precision: Precision, results: Results, skip: Iterable[str] = ()) -> None:
    """Measure one case; one whose results differ from the reference's is a finding and not timed."""
    overload = case.overload
    torch.compiler.reset()  # all cases share this function's code, of which PyTorch compiles eight variants at most

    def reference(*values: Any) -> Any:
        return overload.rule.decompose(overload, values)

    functions: dict[str, Function] = {
        OURS: _with_arguments(overload, overload.op),
        REFERENCE: reference,
        COMPILED: torch.compile(reference, dynamic=False),
    }
    left_out = set(skip)
    size = _check(case, device, functions, left_out, results)
    if size is None:
        return
    has_peak = case.is_measured and device == "cpu"
    has_limit = has_peak and overload.name.endswith(".out") and TRIAD not in left_out
    measured: dict[str, Samples] = {}
    peaks: dict[str, int | None] = {}
    runs = PLACEMENTS if has_limit else 1
    for i in range(runs):
        statements = _statements(case, _call(case, device), functions)
        if has_limit and TRIAD not in left_out:
            try:
                statements[TRIAD] = _triad(size.bytes)
            except UnavailableError as error:
                results.notes.append(f"{TRIAD} is left out of {case.name}: {error}")
                left_out.add(TRIAD)
        timers = _timers(case, statements, left_out, results)
        give_back()  # of earlier cases and of the comparison, so that each case begins with the same allocators
        for name, samples in sample(timers, clock_for(device), precision.for_one_of(runs, is_first=i == 0)).items():
            measured[name] = measured[name] + samples if name in measured else samples
            if has_peak and i == 0:
                peaks[name] = peak(statements[name])
        del statements, timers  # the next ones' tensors are to have their place
        left_out |= functions.keys() - {OURS}  # what takes so much longer is not compared with the limit
    measurements = {}
    for name, samples in measured.items():
        lower, median, upper = samples.quartiles()
        measurements[name] = Measurement(
            median,
            lower,
            upper,
            len(samples.seconds),
            samples.calls,
            size.bytes,
            size.text,
            peak_bytes=peaks.get(name),
        )
    dtype = str(case.dtype).removeprefix("torch.")
    results.rows.append(Row(case.name, overload.name, case.form.value, case.layout, dtype, size.elements, measurements))


@dataclass(frozen=True)
class _Size:
    """Of one call."""

    elements: int
    """Of the largest tensor."""
    bytes: int
    """Of all tensors and results."""
    text: str


def _call(case: Case, device: str) -> SampleCall:
    torch.manual_seed(0)
    return SampleCall(case.overload, case.sample(device, case.form is Form.BACKWARD))


def _check(
    case: Case, device: str, functions: dict[str, Function], left_out: set[str], results: Results
) -> _Size | None:
    """Add the operator's baselines that are right to the functions; None where there is nothing to measure."""
    overload, call = case.overload, _call(case, device)
    if case.form is Form.BACKWARD and not call.inputs:
        return None
    found = as_tuple(functions[OURS](*call.values))
    expected = () if overload.mutates else as_tuple(functions[REFERENCE](*call.values))
    problem = None if overload.mutates else _difference(case, found, expected)
    if problem:
        results.findings.append(f"{case.name}: {problem}; it is not timed")
        return None
    for name, baseline in op_info_of(overload).baselines.items():
        function = _with_arguments(overload, baseline)
        problem = None if name in left_out else _of_baseline(case, call.forward(function), expected)
        if problem:
            results.notes.append(f"{name} is left out of {case.name}: {problem}")
        else:
            functions[name] = function
    tensors = (*call.tensors, *found)
    most = max((tensor.numel() for tensor in tensors), default=0)
    return _Size(most, sum(tensor.numel() * tensor.element_size() for tensor in tensors), call.text)


def _with_arguments(overload: Overload, function: Callable[..., Any]) -> Function:
    return lambda *values: overload.call(function, values)


def _statements(case: Case, call: SampleCall, functions: dict[str, Function]) -> dict[str, Callable[[], Any]]:
    if case.form is not Form.BACKWARD:
        return {name: call.forward(function) for name, function in functions.items()}
    statements = {name: call.with_backward(function) for name, function in functions.items()}
    if not call.has_lists:
        statements[FUNCTIONAL] = call.functional(functions[OURS])
    return statements


def _timers(
    case: Case, statements: dict[str, Callable[[], Any]], left_out: set[str], results: Results
) -> dict[str, timeit.Timer]:
    """Of what can be run; what cannot is left out from now on."""
    timers = {}
    for name, statement in statements.items():
        if name in left_out:
            continue
        try:
            statement()
        except Exception as error:  # compilers raise what they like
            results.notes.append(f"{name} is left out of {case.name}: {str(error).strip().partition(chr(10))[0]}")
            left_out.add(name)
        else:
            timers[name] = timeit.Timer(statement)
    return timers


def measured_rows(results: Results, form: Form) -> list[Row]:
    """The rows of what operators declare to be measured; of their samples where none does."""
    rows = [row for row in results.rows if row.form == form.value]
    return [row for row in rows if row.layout.startswith(MEASURED)] or rows


def compared_with(row: Row) -> str:
    """The baseline that users would call instead: the first that the operator declares, else the reference."""
    others = (OURS, REFERENCE, COMPILED, FUNCTIONAL, TRIAD)
    return next((name for name in row.measurements if name not in others), REFERENCE)


def _difference(case: Case, found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str | None:
    if case.overload.is_random:
        return None
    unit = torch.finfo(case.dtype).eps if case.dtype.is_floating_point else 0.0
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        declared = op_info_of(case.overload).tolerance.get(other.dtype)
        rtol, atol = declared or (64 * unit, 64 * unit)
        if one.shape != other.shape or not torch.allclose(one.double(), other.double(), rtol, atol, equal_nan=True):
            return f"result {i} differs from the reference's"
    return None


def _of_baseline(case: Case, baseline: Callable[[], Any], expected: tuple[Tensor, ...]) -> str | None:
    """What is wrong with a baseline's results, or with calling it."""
    try:
        found = as_tuple(baseline())
    except Exception as error:  # whatever a third party raises
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    if case.overload.mutates:
        return None
    if len(found) != len(expected):
        return f"it has {len(found)} results, the reference has {len(expected)}"
    return _difference(case, found, expected)


def _triad(moved: int) -> Callable[[], Any]:
    a, b, out = (torch.ones(max(1, moved // 12)) for _ in range(3))
    return partial(triad.prepare(a, b, 1.5, out), out)
