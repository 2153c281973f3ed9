"""How much memory of the host a process holds."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc, mallinfo(3)."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]
    uordblks: int
    hblkhd: int


def held() -> int:
    """Bytes that the C library has handed out and not got back; without glibc, those that are resident.

    What is resident hides small leaks: they fill memory that has been freed and not been given back to the system.
    """
    information = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if information is None:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    information.restype = _MallocInfo
    found = information()
    return int(found.uordblks) + int(found.hblkhd)
