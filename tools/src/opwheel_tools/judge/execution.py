"""Runs trials: on the reference in one process, then on the candidate in another; several such pairs side by side."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .cases import Case
from .processes import Worker
from .reproduction import Names
from .trials import Trial

_CHUNK = 24  # trials after which there is news


class Tried(NamedTuple):
    """What came of a trial.

    Args:
        number: of the trial.
        refused: why the reference does not take it; empty where it does.
        row: what the candidate's process says; None where it ended.
        how: a process ended, in words.
        got: the candidate's tensors.
        expected: what the reference says.
    """

    number: int
    refused: str = ""
    row: dict[str, Any] | None = None
    how: str = ""
    got: Any = None
    expected: Any = None


class LoadError(Exception):
    """A candidate or a reference cannot be loaded."""

    code = None


class Execution:
    """Processes and files of a judgement.

    In ``folder``, ``trial-N`` are the inputs of a trial, and ``got-N`` what the candidate gave. What the reference says
    is in ``expected``, a folder that the candidate's process is not told of, and is read and deleted before the
    candidate runs.
    """

    def __init__(self, folder: Path, expected: Path, seconds: float, workers: Sequence[tuple[Worker, Worker]]) -> None:
        self.folder = folder
        self._expected = expected
        self._seconds = seconds
        self._pairs = workers

    def prepare(self, names: Names) -> list[dict[str, Any]]:
        """What the reference's process says of the given calls; the last row is of all of them.

        Raises:
            LoadError: the reference or the inputs cannot be used.
        """
        more = {"inputs": names.inputs, "candidate": names.candidate}
        rows, how = self._pairs[0][0].do(self._task("prepare", names, names.reference, **more))
        return _checked(rows, how, "count", "the reference's process ended on the given inputs")

    def load(self, names: Names) -> dict[str, Any]:
        """What the candidate's process says of the candidate.

        Raises:
            LoadError: it cannot be loaded.
        """
        rows, how = self._pairs[0][1].do(self._task("load", names, names.candidate))
        return _checked(rows, how, "state", f"{names.candidate} cannot be loaded")[-1]

    def run(self, names: Names, numbered: list[tuple[int, Trial]], more: dict[str, Any]) -> Iterator[list[Tried]]:
        """Run trials whose inputs are in files; what came of them, some at a time.

        Args:
            names: of candidate and reference.
            numbered: the trials.
            more: what the candidate's process is told besides.
        """
        chunks = [numbered[i : i + _CHUNK] for i in range(0, len(numbered), _CHUNK)]
        if len(self._pairs) == 1 or len(chunks) == 1:
            yield from (self._chunk(self._pairs[0], names, chunk, more) for chunk in chunks)
            return
        free: queue.Queue[tuple[Worker, Worker]] = queue.Queue()
        for pair in self._pairs:
            free.put(pair)

        def work(chunk: list[tuple[int, Trial]]) -> list[Tried]:
            pair = free.get()
            try:
                return self._chunk(pair, names, chunk, more)
            finally:
                free.put(pair)

        with ThreadPoolExecutor(len(self._pairs)) as pool:
            try:
                yield from pool.map(work, chunks)
            except BaseException:  # an interrupt: the threads are not to go on
                for pair in self._pairs:
                    for worker in pair:
                        worker.close()
                raise

    def is_taken(self, names: Names, number: int, trial: Trial) -> bool:
        """Whether the reference takes the inputs of a trial."""
        return not self._of_reference(self._pairs[0][0], names, [(number, trial)])[0].refused

    def _chunk(
        self, pair: tuple[Worker, Worker], names: Names, chunk: list[tuple[int, Trial]], more: dict[str, Any]
    ) -> list[Tried]:
        found = {one.number: one for one in self._of_reference(pair[0], names, chunk)}
        left = [(number, trial) for number, trial in chunk if not found[number].refused]
        for number, row, how in self._each(pair[1], self._task("try", names, names.candidate, **more), left):
            got = self.folder / f"got-{number}"
            value = torch.load(got, weights_only=True) if got.is_file() else None
            got.unlink(missing_ok=True)
            found[number] = found[number]._replace(row=row, how=how, got=value)
        return list(found.values())

    def _of_reference(self, worker: Worker, names: Names, chunk: list[tuple[int, Trial]]) -> list[Tried]:
        """What the reference says; its files are deleted, so that the candidate cannot find them."""
        found = []
        task = self._task("expect", names, names.reference, expected=str(self._expected))
        for number, row, how in self._each(worker, task, chunk):
            if row is None or "refused" in row:
                found.append(
                    Tried(number, f"the reference's process ended: {how}" if row is None else row["refused"], how=how)
                )
                continue
            if "failed" in row:
                found.append(Tried(number, row["failed"], how=row["failed"]))
                continue
            file = self._expected / str(number)
            found.append(Tried(number, expected=torch.load(file, weights_only=True)))
            file.unlink()
        return found

    def _each(
        self, worker: Worker, task: dict[str, Any], left: list[tuple[int, Trial]]
    ) -> Iterator[tuple[int, Any, str]]:
        """What a worker says of each trial: its number, the answer, or None and how the process ended."""
        while left:
            asked = [[number, trial.as_json()] for number, trial in left]
            rows, how = worker.do({**task, "trials": asked}, self._seconds)
            if not rows or "error" in rows[-1]:
                raise LoadError(rows[-1]["error"] if rows else f"{task['subject']} cannot be loaded: {how}")
            ended = {row["end"]: row for row in rows if "end" in row}
            yield from ((number, row, "") for number, row in ended.items())
            begun = [row["begin"] for row in rows if "begin" in row and row["begin"] not in ended]
            yield from ((number, None, how) for number in begun)
            left = [(number, trial) for number, trial in left if number not in ended and number not in begun]

    def _task(self, do: str, names: Names, subject: str, **more: Any) -> dict[str, Any]:
        common = {"folder": str(self.folder), "imports": list(names.imports), "init": names.init}
        return {"do": do, "subject": subject, **common, **more}


def _checked(rows: list[dict[str, Any]], how: str, key: str, what: str) -> list[dict[str, Any]]:
    if rows and "error" in rows[-1]:
        raise LoadError(rows[-1]["error"])
    if not rows or key not in rows[-1]:
        raise LoadError(f"{what}: {how}")
    return rows


def numbered(
    wanted: Iterable[Trial], cases: list[Case], folder: Path, trials: list[Trial]
) -> tuple[list[tuple[int, Trial]], int]:
    """Write the inputs of trials to files, and append these to the list of all.

    Returns:
        The trials with their numbers, and how many of those that are wanted cannot be: a slice of no dimension.
    """
    found, impossible = [], 0
    for trial in wanted:
        number = len(trials)
        try:
            trial.variant.make(cases[trial.case]).save(folder / f"trial-{number}")
        except (RuntimeError, ValueError, IndexError):
            impossible += 1
            continue
        trials.append(trial)
        found.append((number, trial))
    return found, impossible
