"""The file of results, which is complete after every row."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 0.02
"""How far results may be from those of eager PyTorch, relative to their norm: several roundings of bfloat16."""


@dataclass
class Run:
    """The rows of one backend, by name; None while one is measured."""

    rows: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    """Rows during which the process ended, and its last words."""


@dataclass
class Document:
    """Machine, versions, and the runs of the backends."""

    machine: dict[str, object]
    versions: dict[str, str]
    runs: dict[str, Run] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Replace the file as a whole."""
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n")
        temporary.replace(path)

    def findings(self) -> list[str]:
        """Rows in which ours is wrong, or could not be measured."""
        found = []
        for backend, run in self.runs.items():
            found += [f"{backend}: {name}: the process ended: {said}" for name, said in run.stopped.items()]
            for name, row in run.rows.items():
                off, errors = (row["off"], row["errors"]) if row else ({}, {})
                if not off.get("ours", 0.0) <= LIMIT:  # nan is wrong, too
                    found.append(f"{backend}: {name}: off by {off['ours']:.2g}")
                if "ours" in errors:
                    found.append(f"{backend}: {name}: {errors['ours'].splitlines()[0][:200]}")
        return found


def load(path: Path) -> Document:
    """Read what :meth:`Document.save` wrote."""
    fields = json.loads(path.read_text())
    runs = {name: Run(**run) for name, run in fields.pop("runs").items()}
    return Document(**fields, runs=runs)
