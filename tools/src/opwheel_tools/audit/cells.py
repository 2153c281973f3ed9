"""Starts workers and outlives them: one that dies or hangs ends its cell, and another does the remaining ones."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opwheel.text import how_it_ended, printable

from .limits import wait
from .outcomes import Cell, Outcome, Result

_START = 120.0  # seconds until a worker has imported PyTorch and the library


class WorkerError(Exception):
    """A worker ended before it had done what nothing goes on without.

    ``given`` names the argument of the command that is at fault, if that is not the target.
    """

    def __init__(self, reason: str, given: str = "") -> None:
        super().__init__(reason)
        self.given = given


class Workers:
    """What starts workers for one target.

    Args:
        target: as the command line has it.
        imports: modules to import first.
        calls: the file of the calls.
        seconds: the time limit for one cell.
    """

    def __init__(self, target: str, imports: list[str], calls: Path, seconds: float) -> None:
        self._task = {"target": target, "imports": imports, "calls": str(calls)}
        self.seconds = seconds

    def prepare(self, samples: str = "", recorded: str = "", only: Sequence[str] = ()) -> dict[str, Any]:
        """List the operators and collect the calls.

        Args:
            samples: ``"module:function"``, or empty.
            recorded: a file of recorded calls, or empty.
            only: operators, with or without the namespace; all where empty.

        Raises:
            WorkerError: the library cannot be loaded, or an operator is none of its.
        """
        rows, how = self._run({"do": "prepare", "samples": samples, "recorded": recorded, "only": list(only)})
        if not rows:
            raise WorkerError(f"the library cannot be loaded: {how}")
        if "error" in rows[-1]:
            raise WorkerError(rows[-1]["error"], rows[-1].get("given", ""))
        return rows[-1]

    def scripts(self, findings: list[Result]) -> list[list[str]]:
        """For each finding the texts of its reproduction, the shortest first.

        Raises:
            WorkerError: the process that writes them ended.
        """
        asked = [[f.cell.call, f.cell.check, f.message] for f in findings]
        rows, how = self._run({"do": "scripts", "findings": asked})
        if len(rows) < len(findings):
            raise WorkerError(f"a worker that writes reproductions ended: {how}")
        return [row["scripts"] for row in rows]

    def check(self, cells: list[Cell]) -> Iterator[Result]:
        """Run cells. The first of each call is ``"call"``: where that does not go well the others are not tried."""
        left = sorted(enumerate(cells), key=lambda one: one[1].check != "call")
        broken: dict[int, str] = {}
        while left:
            skipped = [cell for _, cell in left if cell.call in broken]
            yield from (Result(cell, Outcome.NOT_TRIED, broken[cell.call]) for cell in skipped)
            left = [(i, cell) for i, cell in left if cell.call not in broken]
            if not left:
                return
            done = list(self._worker(left))
            for result in done:
                if result.cell.check == "call" and result.outcome is not Outcome.RIGHT:
                    how = "" if result.outcome is Outcome.NOT_TRIED else f"the plain call {result.outcome.value}: "
                    broken[result.cell.call] = how + result.message
            finished = {result.cell for result in done}
            left = [(i, cell) for i, cell in left if cell not in finished]
            yield from done

    def _worker(self, left: list[tuple[int, Cell]]) -> Iterator[Result]:
        """What one worker makes of the cells, until it ends. It leaves out those of calls that it finds broken."""
        cells = dict(left)
        asked = [[i, cell.call, cell.check] for i, cell in left]
        rows, how = self._run({"do": "check", "cells": asked}, self.seconds)
        for row in rows:
            if "end" in row:
                yield Result(cells.pop(row["end"]), Outcome(row["outcome"]), printable(row["message"]))
        if not rows:
            raise WorkerError(f"a worker cannot load the library: {how}")
        if "begin" in rows[-1]:
            yield Result(cells[rows[-1]["begin"]], Outcome.CRASHES, printable(how or how_it_ended(0)))

    def _run(self, task: dict[str, Any], seconds: float = _START) -> tuple[list[dict[str, Any]], str]:
        """Run a worker; give its answers, and how it ended. ``seconds`` is its limit from one answer to the next."""
        with tempfile.TemporaryDirectory() as folder:
            answers, task_file, errors = (Path(folder) / name for name in ("answers", "task", "errors"))
            answers.touch()
            task_file.write_text(json.dumps({**self._task, **task, "answers": str(answers)}))
            with errors.open("w") as stream:
                command = [sys.executable, "-m", "opwheel_tools.audit.worker", str(task_file)]
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
                how = wait(
                    process,
                    lambda: seconds if answers.stat().st_size else _START,
                    lambda: answers.stat().st_size,
                )
            rows = [json.loads(line) for line in answers.read_text().splitlines()]
            last = errors.read_text(errors="replace").strip().splitlines()[-1:]
        return rows, ": ".join(filter(None, [how, *last]))
