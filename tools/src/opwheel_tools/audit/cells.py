"""Starts workers and outlives them: one that dies or hangs ends its cell, and another does the remaining ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opwheel.text import how_it_ended, printable

from ..judge.processes import run_worker
from .outcomes import Cell, Outcome, Result


class WorkerError(Exception):
    """A worker ended before it had done what nothing goes on without.

    ``given`` names the argument of the command that is at fault, if that is not the target.
    """

    code = "OPWHEEL-E094"

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

    def prepare(
        self, samples: str = "", recorded: str = "", only: Sequence[str] = (), allowed: Sequence[str] = ()
    ) -> dict[str, Any]:
        """List the operators and collect the calls.

        Args:
            samples: ``"module:function"``, or empty.
            recorded: a file of recorded calls, or empty.
            only: operators, with or without the namespace; all where empty.
            allowed: operators for which something is declared.

        Raises:
            WorkerError: the library cannot be loaded, or an operator is none of its.
        """
        named = {"--only": list(only), "--allow": list(allowed)}
        rows, how = self._run({"do": "prepare", "samples": samples, "recorded": recorded, "named": named})
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

    def check(self, cells: list[Cell], say: Callable[[Result], Any]) -> None:
        """Run cells. The first of each call is ``"call"``: where that does not go well the others are not tried.

        Args:
            cells: what to run.
            say: is called with each result as soon as it is there.
        """
        left = sorted(enumerate(cells), key=lambda one: one[1].check != "call")
        broken: dict[int, str] = {}
        while left:
            for cell in (cell for _, cell in left if cell.call in broken):
                say(Result(cell, Outcome.NOT_TRIED, broken[cell.call]))
            left = [(i, cell) for i, cell in left if cell.call not in broken]
            if not left:
                return
            done = self._worker(left, say)
            for result in done:
                if result.cell.check == "call" and result.outcome is not Outcome.RIGHT:
                    how = "" if result.outcome is Outcome.NOT_TRIED else f"the plain call {result.outcome.value}: "
                    broken[result.cell.call] = how + result.message
            finished = {result.cell for result in done}
            left = [(i, cell) for i, cell in left if cell not in finished]

    def _worker(self, left: list[tuple[int, Cell]], say: Callable[[Result], Any]) -> list[Result]:
        """What one worker makes of the cells, until it ends. It leaves out those of calls that it finds broken."""
        cells, done = dict(left), []

        def found(result: Result) -> None:
            done.append(result)
            say(result)

        def heard(row: dict[str, Any]) -> None:
            if "end" in row:
                cell, outcome = cells.pop(row["end"]), Outcome(row["outcome"])
                for message in row["messages"]:
                    found(Result(cell, outcome, printable(message)))

        asked = [[i, cell.call, cell.check] for i, cell in left]
        rows, how = self._run({"do": "check", "cells": asked}, self.seconds, heard=heard)
        if not rows:
            raise WorkerError(f"a worker cannot load the library: {how}")
        if "begin" in rows[-1]:
            found(Result(cells[rows[-1]["begin"]], Outcome.CRASHES, printable(how or how_it_ended(0))))
        return done

    def _run(self, task: dict[str, Any], *limits: float, **options: Any) -> tuple[list[dict[str, Any]], str]:
        return run_worker("opwheel_tools.audit.worker", {**self._task, **task}, *limits, **options)
