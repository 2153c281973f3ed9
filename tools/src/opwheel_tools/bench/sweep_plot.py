"""A heat map of a sweep: for each operator how it compares with its baseline, by width, dtype and layout."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from .sweep import LAYOUTS
from .sweep_results import Compared, SweepResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_ROW_INCHES = 0.16
_LIMIT = 2.0
"""Binary logarithms of ratios at which colors end: four times as fast, and a quarter."""


def save(results: SweepResults, path: Path) -> None:
    """Draw the picture into a file; the suffix chooses the format. Of all numbers of rows the slowest is shown."""
    # Not at the top: matplotlib is an optional dependency. No pyplot: it keeps global state and may open a window.
    from matplotlib.figure import Figure

    operators = list(dict.fromkeys(point.operator for point in results.points))
    dtypes = list(dict.fromkeys(point.dtype for point in results.points))
    lines = [(dtype, layout) for dtype in dtypes for layout in LAYOUTS]
    height = max(4.0, len(operators) * (1.2 + _ROW_INCHES * len(lines)))
    figure = Figure(figsize=(12, height), layout="constrained")
    panels = figure.subplots(max(1, len(operators)), 1, squeeze=False)[:, 0]
    image = None
    for axes, operator in zip(panels, operators, strict=False):
        image = _draw(axes, [point for point in results.points if point.operator == operator], lines)
        axes.set_title(operator)
    if image is not None:
        bar = figure.colorbar(image, ax=list(panels), shrink=0.3)
        bar.set_ticks([-2, -1, 0, 1, 2], labels=["1/4", "1/2", "1", "2", "4"])
        bar.set_label("times faster than the baseline, the slowest of all numbers of rows")
    figure.savefig(path, dpi=90)


def _draw(axes: Axes, points: list[Compared], lines: list[tuple[str, str]]) -> AxesImage:
    widths = sorted({point.width for point in points})
    slowest: dict[tuple[tuple[str, str], int], float] = {}
    for point in points:
        place = (point.dtype, point.layout), point.width
        slowest[place] = min(point.ratio, slowest.get(place, math.inf))
    values = [[math.log2(slowest.get((line, width), math.nan)) for width in widths] for line in lines]
    image = axes.imshow(values, aspect="auto", cmap="RdBu", vmin=-_LIMIT, vmax=_LIMIT)
    axes.set_xticks(range(len(widths)), [str(width) for width in widths], fontsize=7)
    axes.set_yticks(range(len(lines)), [", ".join(line) for line in lines], fontsize=7)
    axes.set_xlabel("width")
    return image
