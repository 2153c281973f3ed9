"""The compatibility matrix, operators against what of PyTorch they were tested under, as text of a terminal's width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

LEGEND = "ok: passed, FAIL: failed, --: skipped or not claimed"
_NUMBERED = 4  # characters of a column


def lines(cells: Mapping[str, Mapping[str, Sequence[str]]], width: int) -> Iterator[str]:
    """The matrix. Of a few operators each has a column with its name; of many each has a line.

    Args:
        cells: outcomes by operator and subsystem.
        width: of a line, in characters.
    """
    subsystems = sorted({subsystem for row in cells.values() for subsystem in row})
    margin = max(map(len, subsystems))
    if margin + sum(2 + max(4, len(operator)) for operator in cells) <= width:
        yield " " * margin + "".join(f"  {operator:>4}" for operator in cells)
        for subsystem in subsystems:
            marks = (f"  {mark(row.get(subsystem, ())):>{max(4, len(operator))}}" for operator, row in cells.items())
            yield f"{subsystem:<{margin}}{''.join(marks)}"
    else:
        yield from _with_a_line_for_each(cells, subsystems, width)
    yield LEGEND


def _with_a_line_for_each(
    cells: Mapping[str, Mapping[str, Sequence[str]]], subsystems: Sequence[str], width: int
) -> Iterator[str]:
    """Subsystems have numbers, and those that are too many for a line follow below."""
    margin = max(map(len, cells))
    for number, subsystem in enumerate(subsystems, 1):
        yield f"{number:>{margin}} {subsystem}"
    numbered = list(enumerate(subsystems, 1))
    count = max(1, (width - margin) // _NUMBERED)
    for first in range(0, len(numbered), count):
        part = numbered[first : first + count]
        yield " " * margin + "".join(f"{number:>{_NUMBERED}}" for number, _ in part)
        for operator, row in cells.items():
            marks = "".join(f"{mark(row.get(subsystem, ())):>{_NUMBERED}}" for _, subsystem in part)
            yield f"{operator:>{margin}}{marks}"


def mark(outcomes: Sequence[str]) -> str:
    """What a cell shows."""
    if "failed" in outcomes:
        return "FAIL"
    return "ok" if "passed" in outcomes else "--"
