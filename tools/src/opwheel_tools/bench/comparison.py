"""Compares two runs case by case: what became slower?"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from .results import Measurement, Results
from .suite import Shown
from .tables import format_time


@dataclass(frozen=True)
class Change:
    """One case that both runs have."""

    case: str
    old: Measurement
    new: Measurement
    control: float | None
    """New/old ratio of the control, which no change of the library affects: the drift of the machine."""

    @property
    def ratio(self) -> float:
        """New over old time."""
        return self.new.median_s / self.old.median_s

    def is_slower(self, tolerance: float) -> bool:
        """By more than the tolerance, and by more than the samples of either run scatter."""
        return self.ratio > 1 + tolerance and self.new.lower_quartile_s > self.old.upper_quartile_s


def compare(old: Results, new: Results, shown: Shown) -> list[Change]:
    """The cases that both runs have, of as many elements in both, the one that lost most first."""
    ours, unchanged = shown.ours_name, shown.control
    before = {(row.name, row.elements): row.measurements for row in old.rows}
    changes = []
    for row in new.rows:
        if ours in (earlier := before.get((row.name, row.elements), {})):
            both = unchanged in row.measurements and unchanged in earlier
            control = row.measurements[unchanged].median_s / earlier[unchanged].median_s if both else None
            changes.append(Change(row.name, earlier[ours], row.measurements[ours], control))
    return sorted(changes, key=lambda change: -change.ratio)


def show(old: Results, new: Results, shown: Shown, tolerance: float, console: Console) -> bool:
    """Print what changed; whether nothing became slower."""
    changes = compare(old, new, shown)
    table = Table("case", "before", "now", "now/before", f"{shown.control} now/before", "", box=None, pad_edge=False)
    for change in changes:
        table.add_row(
            change.case.replace("[", "\\["),
            format_time(change.old.median_s),
            format_time(change.new.median_s),
            f"{change.ratio:.2f}",
            "-" if change.control is None else f"{change.control:.2f}",
            "[red]slower[/]" if change.is_slower(tolerance) else "",
        )
    console.print(table)
    elements = {row.name: row.elements for row in old.rows}
    for row in new.rows:
        if (earlier := elements.get(row.name, row.elements)) != row.elements:
            text = f"note: {row.name} is not compared: it had {earlier:,} elements, and has {row.elements:,}"
            console.print(text, markup=False, highlight=False)
    before, now = old.machine | old.settings, new.machine | new.settings
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            text = f"note: not the same conditions: {key} was {before.get(key)!r}, is {now.get(key)!r}"
            console.print(text, markup=False, highlight=False)
    slower = sum(change.is_slower(tolerance) for change in changes)
    console.print(f"{slower} of {len(changes)} cases are slower by more than {tolerance:.0%}", highlight=False)
    return slower == 0
