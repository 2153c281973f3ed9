"""Runs ``opwheel judge`` on a fix and on its parent, each in processes of its own with that source tree."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from .entry import Entry

ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """What the judge says of an entry.

    Args:
        entry: that was judged.
        parent: findings in the parent.
        fix: findings in the fix.
        seconds: of processor time, the longer of both judgements.
        error: why there is no verdict on one of them; empty where there are both.
    """

    entry: Entry
    parent: list[dict[str, Any]]
    fix: list[dict[str, Any]]
    seconds: float
    error: str = ""

    @property
    def found(self) -> str:
        """What the judge says of the defect; empty where it does not find it, or says something else."""
        said = (text for finding in self.parent if self._is_meant(finding) for text in finding["shown_by"])
        return next((text for text in said if self.entry.says in text), "")

    @property
    def unexplained(self) -> list[str]:
        """Groups of findings in the fix which the entry does not expect."""
        return [finding["group"] for finding in self.fix if finding["group"] not in dict(self.entry.accepted)]

    @property
    def is_right(self) -> bool:
        """Whether the parent fails for the right reason, and the fix passes."""
        return not self.error and bool(self.found) and not self.unexplained

    @property
    def row(self) -> str:
        """A row of the table."""
        entry = self.entry
        fix = f"**{', '.join(self.unexplained)}**" if self.unexplained else ", ".join(dict(entry.accepted)) or "right"
        cells = [f"{entry.repository} {entry.fix[:8]}", entry.wrong, self.found or "**not found**", fix]
        if self.error:
            cells[2:] = [f"**{self.error}**", ""]
        return f"| {' | '.join(cells)} | {self.seconds:.0f} |"

    def _is_meant(self, finding: dict[str, Any]) -> bool:
        return bool(finding["group"] == self.entry.group)


def outcome(file: Path, entry: Entry, checkouts: Path) -> Outcome:
    """Judge both commits of an entry.

    Args:
        file: of the entry.
        entry: that it has.
        checkouts: a folder with clones by the names of their repositories.
    """
    verdicts, seconds = [], []
    for commit in (f"{entry.fix}^", entry.fix):
        with tempfile.TemporaryDirectory() as folder:
            before = _processor_seconds()
            try:
                write_tree(checkouts / entry.clone, commit, entry, Path(folder))
                verdicts.append(_judge(file, Path(folder) / entry.source))
            except RuntimeError as error:
                return Outcome(entry, [], [], 0.0, f"{commit[:8]}: {error}")
            seconds.append(_processor_seconds() - before)
    return Outcome(entry, verdicts[0]["findings"], verdicts[1]["findings"], max(seconds))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_tree(clone: Path, commit: str, entry: Entry, folder: Path) -> None:
    """Write the files of a commit, without a checkout of the clone."""
    part = os.path.normpath(f"{entry.source}/{entry.package}")
    command = ["git", "-C", str(clone), "archive", commit, part]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode().strip().splitlines()[-1])
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    for package in (folder / entry.source).glob("*/"):
        (package / "__init__.py").touch()  # without it an installed package of that name would be taken


def _judge(file: Path, folder: Path) -> Any:
    """The verdict on what an entry calls, with a folder on the search path."""
    verdict = folder / "verdict.json"
    command = [sys.executable, "-m", "opwheel", "judge", f"{file}:candidate", "--reference", f"{file}:reference"]
    command += ["--inputs", f"{file}:inputs", "--json", str(verdict), "--no-scripts"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if not verdict.exists():
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(verdict.read_text())
