"""A picture of a run: bandwidth against size below the limit, and what a call costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .results import Results, Row
from .suite import OVERHEAD, Form, Suite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OURS, _LIMIT = "#c1272d", "black"
_PEERS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b")  # nothing that looks like ours
_BAR_HEIGHT = 0.8


def save(results: Results, suite: Suite, path: Path) -> None:
    """Draw the picture into a file; the suffix chooses the format."""
    # Not at the top: matplotlib is an optional dependency. No pyplot: it keeps global state and may open a window.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    left.set_prop_cycle(color=_PEERS)
    _bandwidth(_longest_curve(results), suite, left)
    _overhead(results, right)
    described = [str(results.machine[key]) for key in ("accelerator", "cpu") if key in results.machine]
    figure.suptitle(", ".join([*described, f"torch {results.machine['torch']}"]))
    figure.savefig(path, dpi=150)


def _longest_curve(results: Results) -> list[Row]:
    """The rows that differ in nothing but the number of elements, where there are most of them."""
    curves: dict[tuple[str, ...], list[Row]] = {}
    for row in results.rows:
        curves.setdefault((row.group, row.form, row.layout, row.dtype), []).append(row)
    longest: list[Row] = max(curves.values(), key=len, default=[])
    return sorted(longest, key=lambda row: row.elements)


def _bandwidth(rows: list[Row], suite: Suite, axes: Axes) -> None:
    """Against the number of elements, a line for each peer."""
    for name in dict.fromkeys(name for row in rows for name in row.peers):
        points = [(row.elements, row.peers[name]) for row in rows if name in row.peers]
        sizes = [size for size, _ in points]
        style = {"color": _LIMIT, "linestyle": "--"} if name in suite.limits else {"marker": "o", "markersize": 4}
        if name == suite.ours.name:
            style |= {"color": _OURS, "linewidth": 2.5, "zorder": 3}
        label = f"limit: {name}" if name in suite.limits else name
        axes.plot(sizes, [one.gigabytes_per_second for _, one in points], label=label, **style)
    axes.set(xlabel="elements", ylabel="GB/s")
    if rows:
        axes.set_title(f"{rows[0].peers[suite.ours.name].statement}, {rows[0].layout}, {rows[0].dtype}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    _finish(axes, empty=not rows)


def _overhead(results: Results, axes: Axes) -> None:
    """Microseconds for a call on few elements, a bar for each peer and form."""
    rows = [row for row in results.rows if row.group == OVERHEAD]
    names = list(dict.fromkeys(name for row in rows for name in row.peers))
    labels = {Form.NEW.value: "no input needs a gradient", Form.FORWARD.value: "forward, inputs need gradients"}
    height = _BAR_HEIGHT / max(len(rows), 1)
    for number, row in enumerate(rows):
        present = [position for position, name in enumerate(names) if name in row.peers]
        measured = [row.peers[names[position]] for position in present]
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
    axes.margins(x=0.12)
    axes.set(title=f"one call, {rows[0].elements} elements" if rows else "one call", xlabel="µs")
    _finish(axes, empty=not rows)


def _finish(axes: Axes, *, empty: bool) -> None:
    if empty:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
        return
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
