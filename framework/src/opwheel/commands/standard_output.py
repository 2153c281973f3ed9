"""Standard output is a command's own: what plugins and their libraries print while it works goes to standard error."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TextIO


class _Kept(NamedTuple):
    stream: TextIO
    descriptor: int


_kept: _Kept | None = None


def divert() -> None:
    """Let what is printed go to standard error, by Python and by libraries, until :func:`restore`."""
    global _kept
    if _kept is not None or sys.stdout is None or sys.stderr is None:  # a process may have none
        return
    sys.stdout.flush()
    _kept = _Kept(sys.stdout, os.dup(1))
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def restore() -> None:
    """Undo :func:`divert`."""
    global _kept
    if _kept is None:
        return
    # What was printed with these meanwhile, and is not written yet.
    ctypes.CDLL(None).fflush(None)
    _kept.stream.flush()
    sys.stdout.flush()
    os.dup2(_kept.descriptor, 1)
    os.close(_kept.descriptor)
    sys.stdout = _kept.stream
    _kept = None


@contextmanager
def diverted() -> Iterator[None]:
    """Around what imports a library, or may run code of its plugins."""
    is_nested = _kept is not None
    divert()
    try:
        yield
    finally:
        if not is_nested:
            restore()
