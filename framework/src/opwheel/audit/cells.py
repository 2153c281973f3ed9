"""Starts workers and outlives them: one that dies or hangs ends its cell, and another does the remaining ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .outcomes import Cell, Outcome, Result

_START = 600.0  # seconds until a worker has imported PyTorch and the library, on a busy machine


class WorkerError(Exception):
    """A worker ended before it had begun."""


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
            only: operators; all where empty.

        Raises:
            WorkerError: the library cannot be loaded.
        """
        rows, how = self._run(
            {"do": "prepare", "samples": samples, "recorded": recorded, "only": list(only)}, lambda _: _START
        )
        if not rows:
            raise WorkerError(f"the library cannot be loaded: {how}")
        if "error" in rows[-1]:
            raise WorkerError(rows[-1]["error"])
        return rows[-1]

    def scripts(self, findings: list[Result]) -> list[list[str]]:
        """For each finding the texts of its reproduction, the shortest first."""
        asked = [[f.cell.call, f.cell.check, f.message] for f in findings]
        rows, _ = self._run({"do": "scripts", "findings": asked}, lambda _: _START)
        return [row["scripts"] for row in rows]

    def check(self, cells: list[Cell]) -> Iterator[Result]:
        """Run cells. The first of each call is ``"call"``: where that does not go well the others are not tried."""
        left = list(enumerate(cells))
        broken: dict[int, str] = {}
        while left:
            skipped = [cell for _, cell in left if cell.call in broken]
            yield from (Result(cell, Outcome.NOT_TRIED, broken[cell.call]) for cell in skipped)
            left = [(i, cell) for i, cell in left if cell.call not in broken]
            if not left:
                return
            # A few at a time: the next ones are not sent where a plain call has failed.
            batch = _batch(left)
            done = list(self._batch(batch))
            for result in done:
                if result.cell.check == "call" and result.outcome is not Outcome.RIGHT:
                    broken[result.cell.call] = f"the plain call {result.outcome.value}: {result.message}"
            finished = {result.cell for result in done}
            left = [(i, cell) for i, cell in left if cell not in finished]
            yield from done

    def _batch(self, batch: list[tuple[int, Cell]]) -> Iterator[Result]:
        cells = dict(batch)
        asked = [[i, cell.call, cell.check] for i, cell in batch]
        rows, how = self._run({"do": "check", "cells": asked}, lambda rows: self.seconds if rows else _START)
        for row in rows:
            if "end" in row:
                yield Result(cells.pop(row["end"]), Outcome(row["outcome"]), row["message"])
        if not rows:
            raise WorkerError(f"a worker cannot load the library: {how}")
        if "begin" in rows[-1]:
            yield Result(cells[rows[-1]["begin"]], Outcome.CRASHES, how)

    def _run(self, task: dict[str, Any], limit: Callable[[list[Any]], float]) -> tuple[list[dict[str, Any]], str]:
        """Run a worker until it ends or is silent for too long; give its answers, and how it ended."""
        with tempfile.TemporaryDirectory() as folder:
            answers, task_file, errors = (Path(folder) / name for name in ("answers", "task", "errors"))
            answers.touch()
            task_file.write_text(json.dumps({**self._task, **task, "answers": str(answers)}))
            with errors.open("w") as stream:
                command = [sys.executable, "-m", "opwheel.audit.worker", str(task_file)]
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
                how = _wait(process, answers, limit)
            rows = [json.loads(line) for line in answers.read_text().splitlines()]
            last = errors.read_text(errors="replace").strip().splitlines()[-1:]
        return rows, ": ".join([how, *last])


def _wait(process: subprocess.Popen[bytes], answers: Path, limit: Callable[[list[Any]], float]) -> str:
    size, since = -1, time.monotonic()
    while True:
        try:
            code = process.wait(0.05)
        except subprocess.TimeoutExpired:
            now = answers.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            seconds = limit([size] if size else [])
            if time.monotonic() - since > seconds:
                process.kill()
                process.wait()
                return f"no answer for {seconds:g} seconds"
        else:
            return f"killed by {signal.Signals(-code).name}" if code < 0 else f"the process ended with status {code}"


def _batch(left: list[tuple[int, Cell]]) -> list[tuple[int, Cell]]:
    """The plain calls first, then everything else."""
    plain = [(i, cell) for i, cell in left if cell.check == "call"]
    return plain or left
