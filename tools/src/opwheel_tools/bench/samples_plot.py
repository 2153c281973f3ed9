"""A picture of a run over operators' own samples: how many times faster than PyTorch each operator is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .from_samples import COMPILED, OURS, compared_with, measured_rows
from .results import Results, Row
from .suite import Form
from .tables import format_elements

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR_HEIGHT = 0.8
_ROW_INCHES = 0.32
_COLORS = "#1f77b4", "#9aa0a6"


def save(results: Results, path: Path) -> None:
    """Draw the picture into a file; the suffix chooses the format."""
    # Not at the top: matplotlib is an optional dependency. No pyplot: it keeps global state and may open a window.
    from matplotlib.figure import Figure

    forms = {Form.NEW: "forward", Form.BACKWARD: "forward and backward"}
    rows = {title: measured_rows(results, form) for form, title in forms.items()}
    height = 2 + _ROW_INCHES * max(map(len, rows.values()))
    figure = Figure(figsize=(15, height), layout="constrained")
    both = figure.subplots(1, 2)
    for axes, (title, measured) in zip(both, rows.items(), strict=True):
        _factors(axes, title, measured)
    figure.legend(*both[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(results.measured_on())
    figure.savefig(path, dpi=90)


def _factors(axes: Axes, title: str, rows: list[Row]) -> None:
    """Bars for each row: the time of PyTorch's function, and of the compiled reference, over the operator's."""
    labels = [f"{row.group}, {format_elements(row.elements)}, {row.dtype}" for row in rows]
    implementations = {
        "than PyTorch's function, or the reference where there is none": [compared_with(row) for row in rows],
        "than the reference under torch.compile": [COMPILED] * len(rows),
    }
    height = _BAR_HEIGHT / len(implementations)
    for number, (label, names) in enumerate(implementations.items()):
        present = [i for i, row in enumerate(rows) if names[i] in row.measurements]
        factors = [rows[i].measurements[names[i]].median_s / rows[i].measurements[OURS].median_s for i in present]
        places = [i + (number - (len(implementations) - 1) / 2) * height for i in present]
        bars = axes.barh(places, factors, height, label=label, color=_COLORS[number])
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=7)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.margins(x=0.12, y=0.02)
    axes.set(title=title, xlabel="times faster (left of the line: slower)")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, axis="x", alpha=0.3)
