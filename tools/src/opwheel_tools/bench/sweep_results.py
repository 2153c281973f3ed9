"""What comes out of a sweep, in memory and as JSON, in which a line has all widths of a number of rows."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opwheel.formats import Format

from .results import ResultsFileError

FORMAT = Format("opwheel bench sweep", 2)
SLOWER = 0.95
"""Of the baseline's speed: what is below is measured again."""


@dataclass(frozen=True)
class Compared:
    """How fast an operator is at a point."""

    operator: str
    rows: int
    width: int
    dtype: str
    layout: str
    microseconds: float
    """Of one call of the operator."""
    first: float
    """The baseline's time over the operator's, in a quick sample: above 1, the operator is faster."""
    again: tuple[float, ...] = ()
    """The same in the runs that measured it again."""
    compiled: dict[str, float] = field(default_factory=dict)
    """The compiled baseline's time over the operator's, by backend of ``torch.compile``; at few points."""

    @property
    def ratio(self) -> float:
        """The baseline's time over the operator's, of which the runs that measured it again count alone."""
        return statistics.median(self.again) if self.again else self.first

    @property
    def elements(self) -> int:
        """Of one operand."""
        return self.rows * self.width

    @property
    def name(self) -> str:
        """Of the point at which it was measured."""
        return f"{self.operator} ({self.rows}, {self.width}) {self.dtype} {self.layout}"

    def __str__(self) -> str:
        return f"{self.name}: {self.ratio:.2f}"


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
        """Write it as JSON: times with three digits, ratios with three decimals."""
        head = {"format": FORMAT.as_json(), "machine": self.machine, "settings": self.settings}
        fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        fields.append(f'"left_out": {json.dumps(self.left_out, indent=1)}')
        lines = ",\n".join(json.dumps(line, separators=(",", ":")) for line in self._lines())
        fields.append(f'"points": [\n{lines}\n]')
        path.write_text("{\n" + ",\n".join(fields) + "\n}\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        def place(point: Compared) -> tuple[str, str, str, int]:
            return point.operator, point.dtype, point.layout, point.rows

        ordered = sorted(self.points, key=lambda point: (*place(point), point.width))
        for (operator, dtype, layout, rows), group in itertools.groupby(ordered, place):
            points = list(group)
            line: dict[str, Any] = {"operator": operator, "dtype": dtype, "layout": layout, "rows": rows}
            line["widths"] = [point.width for point in points]
            line["microseconds"] = [float(f"{point.microseconds:.3g}") for point in points]
            line["ratios"] = [round(point.first, 3) for point in points]
            line["again"] = {
                str(point.width): [round(one, 3) for one in point.again] for point in points if point.again
            }
            line["compiled"] = {
                str(point.width): {backend: round(ratio, 3) for backend, ratio in point.compiled.items()}
                for point in points
                if point.compiled
            }
            yield line


def load(path: Path) -> SweepResults:
    """Read what :meth:`SweepResults.save` wrote."""
    try:
        fields = json.loads(path.read_text())
        if fields.pop("format") != FORMAT.as_json():
            raise ResultsFileError(f"{path} has not the format {FORMAT.as_json()}; measure again with this version")
        points = [
            Compared(
                line["operator"],
                line["rows"],
                width,
                line["dtype"],
                line["layout"],
                microseconds,
                first,
                tuple(line["again"].get(str(width), ())),
                line["compiled"].get(str(width), {}),
            )
            for line in fields["points"]
            for width, microseconds, first in zip(line["widths"], line["microseconds"], line["ratios"], strict=True)
        ]
        return SweepResults(**{**fields, "points": points})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsFileError(f"{path} was not written by bench --sweep --json: {error}") from error
