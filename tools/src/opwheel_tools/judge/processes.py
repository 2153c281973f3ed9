"""Starts processes and outlives them: workers, with what they have said until they end, die or hang; reproductions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from opwheel.text import how_it_ended

from .limits import wait

DONE: dict[str, Any] = {"done": True}  # a worker's last answer to a task
_DONE = (json.dumps(DONE) + "\n").encode()
_START = 120.0  # seconds until a worker has imported PyTorch and what it works on


class _Answers:
    """The lines of JSON that a worker has written so far.

    Args:
        file: that it appends them to.
        heard: is called with each as soon as it is read.
    """

    def __init__(self, file: Path, heard: Callable[[dict[str, Any]], Any]) -> None:
        file.touch()
        self._file, self._heard = file, heard
        self._size = 0  # of what has been read
        self.rows: list[dict[str, Any]] = []

    def read(self) -> int:
        """Read whole lines that are new, and give how many there are of all."""
        with self._file.open("rb") as stream:
            stream.seek(self._size)
            for line in stream:
                if line.endswith(b"\n"):
                    self._size += len(line)
                    self.rows.append(json.loads(line))
                    self._heard(self.rows[-1])
        return len(self.rows)


def run_worker(
    module: str,
    task: dict[str, Any],
    seconds: float = _START,
    *,
    imports_alike: bool = False,
    heard: Callable[[dict[str, Any]], Any] = lambda _: None,
) -> tuple[list[dict[str, Any]], str]:
    """Run ``python -m MODULE TASK_FILE``.

    Args:
        module: of the worker, which appends lines of JSON to the file ``task["answers"]``.
        task: what it is to do.
        seconds: its limit from one answer to the next; until the first it is two minutes.
        imports_alike: whether it is to import what this process can.
        heard: is called with each answer as soon as it is there.

    Returns:
        Its answers, and how it ended, in words; empty where it ended with status 0 and printed nothing to stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        file, task_file, errors = (Path(folder) / name for name in ("answers", "task", "errors"))
        answers = _Answers(file, heard)
        task_file.write_text(json.dumps({**task, "answers": str(file)}))
        with errors.open("w") as stream:
            command = [sys.executable, "-m", module, str(task_file)]
            environment = _environment() if imports_alike else None
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment)
            how = wait(process, lambda: seconds if answers.rows else _START, answers.read)
        answers.read()
        last = errors.read_text(errors="replace").strip().splitlines()[-1:]
    return answers.rows, ": ".join(filter(None, [how, *last]))


class Worker:
    """A process ``python -m MODULE`` that does tasks, one after another; where one ends it, the next has a new one.

    It reads the name of a task's file from each line of its standard input, and ends the answers with :data:`DONE`.

    Args:
        module: of the process.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[str] | None = None
        self._count = 0
        self._is_closed = False

    def start(self) -> subprocess.Popen[str]:
        """The process, begun if there is none: importing PyTorch takes seconds, in which others may work."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", self._module]
            with self._errors.open("w") as stream:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=stream, stderr=stream, text=True, env=_environment()
                )
        return self._process

    def do(self, task: dict[str, Any], seconds: float = _START) -> tuple[list[dict[str, Any]], str]:
        """The answers to a task, and how the process ended, in words; empty where it goes on.

        Args:
            task: what it is to do; ``answers`` is added, a file for lines of JSON.
            seconds: its limit from one answer to the next; until the first it is two minutes.
        """
        self._count += 1
        answers, task_file = (Path(self._folder.name) / f"{name}-{self._count}" for name in ("answers", "task"))
        answers.touch()
        task_file.write_text(json.dumps({**task, "answers": str(answers)}))
        if self._is_closed:
            return [], "it was stopped"
        process = self.start()
        if process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended, which is seen below
                print(task_file, file=process.stdin, flush=True)
        how = wait(
            process,
            lambda: seconds if answers.stat().st_size else _START,
            lambda: answers.stat().st_size,
            lambda: answers.read_bytes().endswith(_DONE),
        )
        rows = [json.loads(line) for line in answers.read_text().splitlines()]
        if rows[-1:] == [DONE]:
            return rows[:-1], ""
        last = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
        return rows, ": ".join(filter(None, [how or how_it_ended(0), *last]))

    def close(self) -> None:
        """End the process."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()

    @property
    def _errors(self) -> Path:
        return Path(self._folder.name) / "errors"


def _environment() -> dict[str, str]:
    """Variables of processes that import what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])}


def shows(text: str, seconds: float, *, is_crash: bool) -> bool:
    """Whether a reproduction, run now, ends as its finding says.

    That is by its assertion, or for a crash by a signal, a silent exit or no end at all.

    Args:
        text: of the script.
        seconds: its limit.
        is_crash: whether the finding is one.
    """
    with tempfile.TemporaryDirectory() as folder:
        script, errors = Path(folder) / "reproduction.py", Path(folder) / "errors"
        script.write_text(text)
        with errors.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, str(script)], env=_environment(), stdout=subprocess.DEVNULL, stderr=stream
            )
            wait(process, lambda: seconds, lambda: None)
        printed = errors.read_text(errors="replace")
    if is_crash:
        return process.returncode != 0 and "Traceback" not in printed
    return process.returncode == 1 and "AssertionError" in printed
