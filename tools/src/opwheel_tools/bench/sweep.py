"""Measures operators over a grid of widths, rows, dtypes and layouts, against the baseline that is declared with each.

A quick sample of each point, and what is slower than the baseline once more, in three interleaved runs: a point counts
as slower if the median of these says so. The results are not compared; that is what the conformance kit is for.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import statistics
import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from opwheel.dispatch.overload import Overload
from torch import Tensor

from ..opinfo.lookup import op_info_of
from .sampling import Precision, clock_for, sample
from .sweep_results import SLOWER, Compared, SweepResults

WIDTHS = (1, 2, 3, 4, 7, 8, 12, 16, 24, 31, 32, 48, 64, 96, 100, 127, 128, 192, 256, 512, 1000, 1024, 2048, 4096, 8192)
ROWS = (1, 8, 64, 512, 4096, 65536)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST_ELEMENTS = 1 << 22
"""Larger tensors are left out: they take long, and memory is the limit for every implementation."""
COMPILED_AT = ((1, 64), (64, 1024), (4096, 1024))
"""Rows and widths of the contiguous tensors for which baselines are compiled, which takes seconds."""

_GLANCE = Precision(error=1.0, seconds=0.0, sample_seconds=5e-4, settle_seconds=0.0, rounds=(3, 3))
_RUN = Precision(error=0.02, seconds=0.1, sample_seconds=1e-3, settle_seconds=1e-3, rounds=(9, 50))
_RUNS = 3


def _unaligned(x: Tensor) -> Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "unaligned": _unaligned,
    "rows apart": lambda x: torch.nn.functional.pad(x, (0, 3))[:, : x.shape[1]],
    "every other element": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "transposed": lambda x: x.t().contiguous().t(),
    "one row for all": lambda x: x[:1].expand_as(x),
}
"""Of two dimensions, made from a contiguous tensor."""


@dataclass(frozen=True)
class Point:
    """A call of an operator."""

    overload: Overload
    rows: int
    width: int
    dtype: torch.dtype
    layout: str

    @property
    def name(self) -> str:
        """Identifies the point."""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.overload.name} ({self.rows}, {self.width}) {dtype} {self.layout}"

    def make(self, rows: int, width: int) -> Tensor:
        """A tensor of random numbers in the point's dtype and layout."""
        return LAYOUTS[self.layout](torch.randn(rows, width).to(self.dtype))

    def calls(self) -> dict[str, Callable[[], object]] | None:
        """The operator and its baseline, with operands of their own; None where there is no such call."""
        swept = op_info_of(self.overload).swept
        assert swept is not None
        calls = swept(self.make, self.rows, self.width)
        return None if calls is None else dict(zip(("operator", "baseline"), calls, strict=True))


def points(overloads: Iterable[Overload], groups: Iterable[str] = (), *, quick: bool = False) -> Iterator[Point]:
    """The grid, for operators that declare ``swept`` (``groups``: those alone). ``quick``: a corner of it."""
    chosen = set(groups)
    grid = ((4,), (16, 33), (torch.float32,)) if quick else (ROWS, WIDTHS, DTYPES)
    for overload in overloads:
        name = overload.operator.name
        if op_info_of(overload).swept is None or (chosen and name not in chosen):
            continue
        for rows, width, dtype, layout in itertools.product(*grid, LAYOUTS):
            if rows * width <= MOST_ELEMENTS:
                yield Point(overload, rows, width, dtype, layout)


def run(point: Point, results: SweepResults) -> None:
    """Measure a point, again if it is slower than the baseline."""
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            first = _seconds(point, _GLANCE)
            if first is None:
                return
            ours, theirs = first
            runs = [_seconds(point, _RUN) for _ in range(_RUNS if theirs < SLOWER * ours else 0)]
    except (RuntimeError, ValueError, NotImplementedError) as error:
        _leave_out(f"{point.overload.name} {point.dtype}", error, results)
        return
    again = tuple(one[1] / one[0] for one in runs if one is not None)
    dtype = str(point.dtype).removeprefix("torch.")
    name = point.overload.operator.name
    found = Compared(name, point.rows, point.width, dtype, point.layout, ours * 1e6, theirs / ours, again)
    results.points.append(found)


def has_backend(backend: str) -> bool:
    """Whether ``torch.compile`` has this backend, or a package of its name may bring it."""
    return backend in torch.compiler.list_backends(exclude_tags=()) or importlib.util.find_spec(backend) is not None


def compiled_points(points: Iterable[Point], *, quick: bool = False) -> list[Point]:
    """Those at ``COMPILED_AT``; with ``quick`` all that are contiguous."""
    return [
        point
        for point in points
        if point.layout == "contiguous"
        and point.dtype in (torch.float32, torch.bfloat16)
        and (quick or (point.rows, point.width) in COMPILED_AT)
    ]


def run_compiled(point: Point, backend: str, results: SweepResults) -> None:
    """Measure a point beside its baseline as ``torch.compile`` makes it with a backend.

    Backends may change what others do: they are for after all points have been measured, one after the other.
    """
    torch.compiler.reset()
    try:
        if backend not in torch.compiler.list_backends(exclude_tags=()):
            importlib.import_module(backend)
        calls = point.calls()
        if calls is None:
            return
        calls["baseline"] = _compiled(calls["baseline"], backend)
        with torch.no_grad():
            ours, theirs = _sampled(calls, _RUN)
    except Exception as error:  # of whatever the backend is
        _leave_out(f"{backend} of {point.overload.name} {point.dtype}", error, results)
        return
    for index, one in enumerate(results.points):
        if one.name == point.name:
            results.points[index] = replace(one, compiled={**one.compiled, backend: theirs / ours})


def _compiled(call: Callable[[], object], backend: str) -> Callable[[], object]:
    if isinstance(call, partial):  # the operands are arguments then
        return partial(torch.compile(call.func, backend=backend, dynamic=False), *call.args, **call.keywords)
    return torch.compile(call, backend=backend, dynamic=False)


def _leave_out(what: str, error: Exception, results: SweepResults) -> None:
    problem = f"{what}: {str(error).strip().partition(chr(10))[0]}"
    if problem not in results.left_out:
        results.left_out.append(problem)


def _seconds(point: Point, precision: Precision) -> tuple[float, float] | None:
    calls = point.calls()
    return None if calls is None else _sampled(calls, precision)


def _sampled(calls: dict[str, Callable[[], object]], precision: Precision) -> tuple[float, float]:
    found = sample({name: timeit.Timer(call) for name, call in calls.items()}, clock_for("cpu"), precision)
    return statistics.median(found["operator"].seconds), statistics.median(found["baseline"].seconds)
