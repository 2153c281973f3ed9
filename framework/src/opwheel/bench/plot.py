"""A picture of a run: bandwidth against size below the limit, and what a call costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .cases import Form, Group
from .peers import LIMITS, MULADD
from .results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OURS, _LIMIT = "#c1272d", "black"
_PEERS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b")  # nothing that looks like ours
_BAR_HEIGHT = 0.8


def save(results: Results, path: Path) -> None:
    """Draw the picture into a file; the suffix chooses the format."""
    # Not at the top: matplotlib is an optional dependency. No pyplot: it keeps global state and may open a window.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    left.set_prop_cycle(color=_PEERS)
    _bandwidth(results, left)
    _overhead(results, right)
    described = [str(results.machine[key]) for key in ("accelerator", "cpu") if key in results.machine]
    figure.suptitle(", ".join([*described, f"torch {results.machine['torch']}"]))
    figure.savefig(path, dpi=150)


def _bandwidth(results: Results, axes: Axes) -> None:
    """Of float32, contiguous, into a given output."""
    wanted = (Group.OUT.value, "contiguous", "float32")
    rows = [row for row in results.rows if (row.group, row.layout, row.dtype) == wanted]
    rows.sort(key=lambda row: row.elements)
    for name in dict.fromkeys(name for row in rows for name in row.peers):
        points = [(row.elements, row.peers[name]) for row in rows if name in row.peers]
        sizes = [size for size, _ in points]
        style = {"color": _LIMIT, "linestyle": "--"} if name in LIMITS else {"marker": "o", "markersize": 4}
        if name == MULADD.name:
            style |= {"color": _OURS, "linewidth": 2.5, "zorder": 3}
        label = f"limit: {name}" if name in LIMITS else name
        axes.plot(sizes, [one.gigabytes_per_second for _, one in points], label=label, **style)
    axes.set(title="out = a * b + c, float32", xlabel="elements", ylabel="GB/s")
    _finish(axes, empty=not rows)
    if rows:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")


def _overhead(results: Results, axes: Axes) -> None:
    """Microseconds for a call with four elements, a bar for each peer and form."""
    rows = [row for row in results.rows if row.group == Group.OVERHEAD.value]
    names = list(dict.fromkeys(name for row in rows for name in row.peers))
    labels = {Form.NO_GRAD.value: "no_grad", Form.NEW.value: "no input needs a gradient"}
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
        axes.bar_label(bars, fmt="%.1f", padding=4, fontsize=7)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(title="one call, 4 elements", xlabel="µs")
    _finish(axes, empty=not rows)


def _finish(axes: Axes, *, empty: bool) -> None:
    if empty:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
        return
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
