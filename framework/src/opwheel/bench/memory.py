"""How much memory a call takes, as the operating system counts it: all of it, whoever allocates."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"  # proc(5), clear_refs: VmHWM becomes what is resident now


def resident() -> int | None:
    """Bytes of this process that are in memory; None where the system does not tell."""
    file = _PROCESS / "statm"
    return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if file.exists() else None


def peak(call: Callable[[], object]) -> int | None:
    """The most bytes that were in memory during a call, beyond those before it; None where the system does not tell.

    The call's results count. What an allocator has kept of earlier calls is given back first, so that it counts as well
    when it is used again.
    """
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    before = resident()
    try:
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return None
    kept = call()
    status = dict(line.split(":", 1) for line in (_PROCESS / "status").read_text().splitlines())
    del kept
    return None if before is None else int(status["VmHWM"].removesuffix("kB")) * 1024 - before
