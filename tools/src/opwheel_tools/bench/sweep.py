"""Measures operators over a grid of widths, rows, dtypes and layouts, against the baseline that is declared with each.

A quick sample of each point, and what is slower than the baseline once more, in three interleaved runs: a point counts
as slower if the median of these says so. The results are not compared; that is what the conformance kit is for.
"""

from __future__ import annotations

import itertools
import json
import statistics
import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from opwheel.dispatch.overload import Overload
from opwheel.formats import Format
from torch import Tensor

from ..opinfo.lookup import op_info_of
from .sampling import Precision, clock_for, sample

FORMAT = Format("opwheel bench sweep", 1)
WIDTHS = (1, 2, 3, 4, 7, 8, 12, 16, 24, 31, 32, 48, 64, 96, 100, 127, 128, 192, 256, 512, 1000, 1024, 2048, 4096, 8192)
ROWS = (1, 8, 64, 512, 4096, 65536)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST_ELEMENTS = 1 << 22
"""Larger tensors are left out: they take long, and memory is the limit for every implementation."""
SLOWER = 0.95
"""Of the baseline's speed: what is below is measured again."""

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

    def timers(self) -> dict[str, timeit.Timer] | None:
        """The operator and its baseline, with operands of their own; None where there is no such call."""
        swept = op_info_of(self.overload).swept
        assert swept is not None
        calls = swept(self.make, self.rows, self.width)
        return None if calls is None else dict(zip(("operator", "baseline"), map(timeit.Timer, calls), strict=True))


@dataclass(frozen=True)
class Compared:
    """How fast an operator is at a point; seconds for one call."""

    operator: str
    rows: int
    width: int
    dtype: str
    layout: str
    operator_s: float
    baseline_s: float
    runs: tuple[float, ...] = ()
    """The ratios of the runs that measured it again."""

    @property
    def ratio(self) -> float:
        """The baseline's time over the operator's: above 1, the operator is faster."""
        return statistics.median(self.runs) if self.runs else self.baseline_s / self.operator_s

    def __str__(self) -> str:
        return f"{self.operator} ({self.rows}, {self.width}) {self.dtype} {self.layout}: {self.ratio:.2f}"


@dataclass
class SweepResults:
    """One sweep."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    points: list[Compared] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What could not be called, with the reason; each once."""

    @property
    def slower(self) -> list[Compared]:
        """What is below ``SLOWER``, the slowest first."""
        return sorted((point for point in self.points if point.ratio < SLOWER), key=lambda point: point.ratio)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps({"format": FORMAT.as_json(), **asdict(self)}, indent=1) + "\n")


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
        problem = f"{point.overload.name} {point.dtype}: {str(error).strip().partition(chr(10))[0]}"
        if problem not in results.left_out:
            results.left_out.append(problem)
        return
    ratios = tuple(again[1] / again[0] for again in runs if again is not None)
    dtype = str(point.dtype).removeprefix("torch.")
    name = point.overload.operator.name
    results.points.append(Compared(name, point.rows, point.width, dtype, point.layout, ours, theirs, ratios))


def _seconds(point: Point, precision: Precision) -> tuple[float, float] | None:
    timers = point.timers()
    if timers is None:
        return None
    found = sample(timers, clock_for("cpu"), precision)
    return statistics.median(found["operator"].seconds), statistics.median(found["baseline"].seconds)
