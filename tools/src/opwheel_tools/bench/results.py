"""What comes out of a run, in memory and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opwheel.formats import Format

FORMAT = Format("opwheel bench", 2)


class ResultsFileError(Exception):
    """A file that is not what ``bench --json`` writes."""

    code = "OPWHEEL-E095"


@dataclass(frozen=True)
class Measurement:
    """One implementation in one case; seconds for one call."""

    median_s: float
    lower_quartile_s: float
    upper_quartile_s: float
    samples: int
    calls_per_sample: int
    bytes: int
    statement: str
    resident_bytes: int | None = None
    """What one call added to the memory of its process, its result included; None where it was not measured."""
    peak_bytes: int | None = None
    """The most that one call had in memory beyond what was there before; None where it was not measured."""

    @property
    def gigabytes_per_second(self) -> float:
        """Of what has to be moved, not of what the implementation in fact moves."""
        return self.bytes / self.median_s / 1e9

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles, relative to the median."""
        return (self.upper_quartile_s - self.lower_quartile_s) / 2 / self.median_s


@dataclass(frozen=True)
class Row:
    """One case."""

    name: str
    group: str
    form: str
    layout: str
    dtype: str
    elements: int
    measurements: dict[str, Measurement]


@dataclass
class Results:
    """One run."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Implementations that did not take part, with the reason."""
    findings: list[str] = field(default_factory=list)
    """What is wrong."""

    def measured_on(self) -> str:
        """Machine, settings and label in one line."""
        machine, settings = self.machine, self.settings
        parts = [machine["accelerator"]] if "accelerator" in machine else []
        parts += [machine["cpu"], f"{settings['threads']} threads", machine["capability"], f"torch {machine['torch']}"]
        if "huge_pages" in machine:
            parts.append(f"huge pages: {machine['huge_pages']}")
        if "label" in settings:
            parts.append(settings["label"])
        return ", ".join(parts)

    def save(self, path: Path) -> None:
        """Write the run as JSON."""
        path.write_text(json.dumps({"format": FORMAT.as_json(), **asdict(self)}, indent=1) + "\n")


def load(path: Path) -> Results:
    """Read what :meth:`Results.save` wrote."""
    try:
        fields = json.loads(path.read_text())
        if fields.pop("format") != FORMAT.as_json():
            raise ResultsFileError(f"{path} has not the format {FORMAT.as_json()}; measure again with this version")
        for row in fields["rows"]:
            row["measurements"] = {name: Measurement(**one) for name, one in row["measurements"].items()}
        return Results(**{**fields, "rows": [Row(**row) for row in fields["rows"]]})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultsFileError(f"{path} was not written by bench --json: {error}") from error
