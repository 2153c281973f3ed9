"""The results as tables: the library's time and bandwidth, and the ratio to each implementation."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .results import Measurement, Results, Row
from .suite import Shown

DISTURBED = 0.2  # half the distance of the quartiles, relative to the median: above, a time is noisy


def show(results: Results, shown: Shown, console: Console) -> None:
    """Print a table for each group, then notes and findings."""
    ours = shown.ours_name
    for group in dict.fromkeys(row.group for row in results.rows):
        console.print(_table(group, [row for row in results.rows if row.group == group], shown))
        console.print()
    for name in dict.fromkeys(name for row in results.rows for name in row.measurements):
        if name in shown.explanations:
            console.print(f"{name}: {shown.explanations[name]}", markup=False, highlight=False)
    if results.rows:
        console.print(
            "time: median of a call, ± half the distance of the quartiles. Below an implementation: its time over "
            f"{ours}'s, so 2.00 means that {ours} is twice as fast. Below the limit: the share of its bandwidth that "
            f"{ours} reaches. noisy: ± more than {DISTURBED:.0%}. resident: what one call adds to the memory of its "
            "process.",
            highlight=False,
        )
    disturbed = sum(row.measurements[ours].spread > DISTURBED for row in results.rows)
    if disturbed:
        text = (
            f"note: {disturbed} of {len(results.rows)} times scatter by more than {DISTURBED:.0%}: the machine is busy"
        )
        console.print(text, highlight=False)
    for note in results.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    for finding in results.findings:
        console.print(f"wrong: {finding}", markup=False, highlight=False)


def format_time(seconds: float) -> str:
    """Three digits in the fitting unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def format_elements(elements: int) -> str:
    """A power of two as such."""
    return f"2^{elements.bit_length() - 1}" if elements >= 1024 else str(elements)


def _table(group: str, rows: list[Row], shown: Shown) -> Table:
    others = [
        name for name in dict.fromkeys(name for row in rows for name in row.measurements) if name != shown.ours_name
    ]
    table = Table(title=group, title_justify="left", box=None, pad_edge=False)
    for heading in ("form", "layout", "dtype"):
        table.add_column(heading, no_wrap=True)
    has_memory = any(row.measurements[shown.ours_name].resident_bytes is not None for row in rows)
    for heading in ("elements", "time", "±", "GB/s", *(["resident"] if has_memory else []), *others):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        ours = row.measurements[shown.ours_name]
        table.add_row(
            row.form,
            row.layout.replace("[", "\\["),
            row.dtype,
            format_elements(row.elements),
            format_time(ours.median_s),
            f"{ours.spread:.0%}" if ours.spread <= DISTURBED else "noisy",
            f"{ours.gigabytes_per_second:.3g}",
            *([_mebibytes(ours.resident_bytes)] if has_memory else []),
            *(_ratio(ours, row.measurements.get(name), is_limit=name in shown.limits) for name in others),
        )
    return table


def _mebibytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MiB"


def _ratio(ours: Measurement, theirs: Measurement | None, *, is_limit: bool) -> str:
    if theirs is None:
        return "-"
    if is_limit:
        return f"{ours.gigabytes_per_second / theirs.gigabytes_per_second:.0%}"
    ratio = theirs.median_s / ours.median_s
    return f"[{'green' if ratio >= 1 else 'yellow'}]{ratio:.2f}[/]"
