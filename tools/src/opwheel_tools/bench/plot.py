"""A picture of a run: bandwidth and relative time against size, and what a call costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .results import Results, Row
from .suite import OVERHEAD, Form, Suite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OURS, _LIMIT = "#c1272d", "black"
# Nothing that looks like ours.
_BASELINES = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22")
_BAR_HEIGHT = 0.8
_MOST_RELATIVE = 2.5  # beyond this, lines leave the picture: it is about what is near 1


def save(results: Results, suite: Suite, path: Path) -> None:
    """Draw the picture into a file; the suffix chooses the format."""
    # Not at the top: matplotlib is an optional dependency. No pyplot: it keeps global state and may open a window.
    from matplotlib.figure import Figure

    curves = _curves(results)
    figure = Figure(figsize=(13, 9), layout="constrained")
    (bandwidth, first), (second, overhead) = figure.subplots(2, 2)
    for axes in (bandwidth, first, second):
        axes.set_prop_cycle(color=_BASELINES)
    _bandwidth(curves[0], suite, bandwidth)
    _relative(curves[0], suite, first)
    _relative(curves[1], suite, second)
    _overhead(results, overhead)
    figure.suptitle(results.measured_on())
    figure.savefig(path, dpi=110)


def _curves(results: Results) -> tuple[list[Row], list[Row]]:
    """The two longest series of rows that differ in nothing but the number of elements."""
    series: dict[tuple[str, ...], list[Row]] = {}
    for row in results.rows:
        series.setdefault((row.group, row.form, row.layout, row.dtype), []).append(row)
    longest = [sorted(rows, key=lambda row: row.elements) for rows in series.values()]
    longest.sort(key=len, reverse=True)
    first, second = [*longest, [], []][:2]
    return first, second


def _bandwidth(rows: list[Row], suite: Suite, axes: Axes) -> None:
    """Against the number of elements, a line for each implementation."""
    for name in _names(rows):
        points = [
            (row.elements, row.measurements[name].gigabytes_per_second) for row in rows if name in row.measurements
        ]
        _line(axes, name, suite, points)
    axes.set(ylabel="GB/s")
    if rows:
        axes.set_yscale("log")
    _finish_curve(axes, rows, suite)


def _relative(rows: list[Row], suite: Suite, axes: Axes) -> None:
    """Time over the control's, on a linear axis: below 1 is faster than it."""
    control = suite.control
    rows = [row for row in rows if control in row.measurements]
    for name in _names(rows):
        points = [
            (row.elements, row.measurements[name].median_s / row.measurements[control].median_s)
            for row in rows
            if name in row.measurements
        ]
        _line(axes, name, suite, points)
    axes.set(ylabel=f"time / {control}'s")
    axes.set_ylim(0, _MOST_RELATIVE)
    _finish_curve(axes, rows, suite)


def _names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.measurements))


def _line(axes: Axes, name: str, suite: Suite, points: list[tuple[int, float]]) -> None:
    style = {"color": _LIMIT, "linestyle": "--"} if name in suite.limits else {"marker": "o", "markersize": 4}
    if name == suite.ours.name:
        style |= {"color": _OURS, "linewidth": 2.5, "zorder": 3}
    label = f"limit: {name}" if name in suite.limits else name
    axes.plot([x for x, _ in points], [y for _, y in points], label=label, **style)


def _finish_curve(axes: Axes, rows: list[Row], suite: Suite) -> None:
    axes.set(xlabel="elements")
    if rows:
        axes.set_title(f"{rows[0].measurements[suite.ours.name].statement}, {rows[0].layout}, {rows[0].dtype}")
        axes.set_xscale("log", base=2)
    _finish(axes, empty=not rows)


def _overhead(results: Results, axes: Axes) -> None:
    """Microseconds for a call on few elements, a bar for each implementation and form."""
    rows = [row for row in results.rows if row.group == OVERHEAD]
    names = list(dict.fromkeys(name for row in rows for name in row.measurements))
    labels = {Form.NEW.value: "no input needs a gradient", Form.FORWARD.value: "forward, inputs need gradients"}
    height = _BAR_HEIGHT / max(len(rows), 1)
    for number, row in enumerate(rows):
        present = [position for position, name in enumerate(names) if name in row.measurements]
        measured = [row.measurements[names[position]] for position in present]
        bars = axes.barh(
            [position + (number - (len(rows) - 1) / 2) * height for position in present],
            [one.median_s * 1e6 for one in measured],
            height,
            xerr=[
                [(one.median_s - one.lower_quartile_s) * 1e6 for one in measured],
                [(one.upper_quartile_s - one.median_s) * 1e6 for one in measured],
            ],
            label=labels.get(row.form, row.form),
        )
        axes.bar_label(bars, fmt="%.1f", padding=4, fontsize=6)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    slowest = max((one.median_s for row in rows for one in row.measurements.values()), default=0)
    if slowest:
        axes.set_xlim(0, 1.15e6 * slowest)  # from the medians: whiskers may leave the picture
    axes.set(title=f"one call, {rows[0].elements} elements" if rows else "one call", xlabel="µs")
    _finish(axes, empty=not rows)


def _finish(axes: Axes, *, empty: bool) -> None:
    if empty:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
        return
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
