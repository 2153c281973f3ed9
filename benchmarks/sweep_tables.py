"""What the committed sweep of transformer_ops shows, in Markdown: where it is slower, and what compiled code takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TypeVar

from opwheel_tools.bench.sweep_results import SLOWER, Compared, SweepResults

LARGE = 4096
"""Elements from which on a call's fixed costs are a small part of it."""
_MUCH_SLOWER = 0.9

_Key = TypeVar("_Key", str, tuple[str, int, str])


def slower(results: SweepResults) -> str:
    """How many points of each operator are slower, and which, put together by rows and layout."""
    lines = [f"| | points | below {SLOWER:.2f} | of {LARGE:,} elements or more, below {_MUCH_SLOWER:.2f} | slowest |"]
    lines.append("|---|---|---|---|---|")
    for operator, points in _grouped(results.points, lambda point: point.operator):
        below = [point for point in points if point.ratio < SLOWER]
        large = [point for point in below if point.elements >= LARGE and point.ratio < _MUCH_SLOWER]
        slowest = f"{min(point.ratio for point in points):.2f}"
        lines.append(f"| `{operator}` | {len(points):,} | {len(below):,} | {len(large):,} | {slowest} |")
    lines += ["", "| slower | rows | widths | dtypes | layout | points | PyTorch |", "|---|---|---|---|---|---|---|"]
    for (operator, rows, layout), points in _grouped(
        results.slower, lambda point: (point.operator, point.rows, point.layout)
    ):
        widths = ", ".join(map(str, sorted({point.width for point in points})))
        dtypes = ", ".join(sorted({point.dtype for point in points}))
        ratios = sorted(f"{point.ratio:.2f}" for point in points)
        span = ratios[0] if ratios[0] == ratios[-1] else f"{ratios[0]} to {ratios[-1]}"
        lines.append(f"| `{operator}` | {rows:,} | {widths} | {dtypes} | {layout} | {len(points)} | {span} |")
    return "\n".join([*lines, ""])


def compiled(results: SweepResults) -> str:
    """PyTorch's function, compiled, over the operator: a column for each backend of torch.compile."""
    points = [point for point in results.points if point.compiled]
    backends = list(dict.fromkeys(name for point in points for name in point.compiled))
    if not backends:
        return ""
    lines = [f"| | PyTorch | {' | '.join(backends)} |", f"|---|---|{'---|' * len(backends)}"]
    for point in points:
        cells = [f"{point.compiled[name]:.2f}" if name in point.compiled else "-" for name in backends]
        called = f"`{point.operator}`, ({point.rows}, {point.width}), {point.dtype}"
        lines.append(f"| {called} | {point.ratio:.2f} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _grouped(points: Iterable[Compared], key: Callable[[Compared], _Key]) -> list[tuple[_Key, list[Compared]]]:
    return [(name, list(group)) for name, group in itertools.groupby(sorted(points, key=key), key)]
