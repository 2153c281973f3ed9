"""A time limit that a busy machine does not use up: time that a process wants to run and is not let does not count."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opwheel.text import how_it_ended

_LOOK = 0.05  # seconds
_TICKS = os.sysconf("SC_CLK_TCK")


def wait(
    process: subprocess.Popen[Any],
    seconds: Callable[[], float],
    progress: Callable[[], Any],
    is_done: Callable[[], bool] = lambda: False,
) -> str:
    """Wait until a process ends, or has done its work; kill it where it makes no progress for too long.

    An interrupt kills it, too.

    Args:
        process: the process.
        seconds: gives the limit that holds now: processor time, and time in which it waits for something.
        progress: gives another value after each step of the process's work.
        is_done: whether the work is done, so that the process need not end.

    Returns:
        How it ended, in words; empty where it ended with status 0, or its work is done.
    """
    try:
        return _wait(process, seconds, progress, is_done)
    except BaseException:
        process.kill()
        process.wait()  # until then it may write files, in a folder that is about to be deleted
        raise


def _wait(
    process: subprocess.Popen[Any],
    seconds: Callable[[], float],
    progress: Callable[[], Any],
    is_done: Callable[[], bool],
) -> str:
    used, last, before = 0.0, progress(), time.monotonic()
    cpu, _ = _state(process.pid)
    while not is_done():
        try:
            code = process.wait(_LOOK)
            return how_it_ended(code) if code else ""
        except subprocess.TimeoutExpired:
            pass
        (cpu_now, is_runnable), now = _state(process.pid), time.monotonic()
        used += cpu_now - cpu if is_runnable else now - before
        cpu, before = cpu_now, now
        if (step := progress()) != last:
            used, last = 0.0, step
        if used > (limit := seconds()):
            process.kill()
            process.wait()
            return f"no end after {limit:g} seconds"
    return ""


def _state(pid: int) -> tuple[float, bool]:
    """Processor time in seconds, and whether the main thread runs or would if there were a processor for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS, fields[0] == "R"
