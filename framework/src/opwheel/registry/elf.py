"""Looks at a shared library before the dynamic loader does."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from pathlib import Path

_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
# aoti_torch_library_def of the stable ABI, torch::Library::_def of the C++ interface.
_DEFINING = (b"torch_library_def", b"torch7Library4_def")
_LOAD = 1  # p_type of a segment that is mapped


def check_complete(path: Path) -> None:
    """Check that a file has all the bytes its header speaks of. What is no ELF file is left to the loader.

    The loader maps a file that ends too early without complaint, and the process dies of SIGBUS at the first missing
    page.

    Raises:
        OSError: it has not, or cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(64)
        if not header.startswith(_64_BIT_LITTLE_ENDIAN) or len(header) < 64:
            return
        (offset,) = struct.unpack_from("<Q", header, 32)
        entry_size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(entry_size * count)
        size = os.fstat(file.fileno()).st_size
    needed = max([offset + entry_size * count, *_segment_ends(table, entry_size)])
    if size < needed:
        raise OSError(errno.ENOEXEC, f"truncated: {size} bytes of at least {needed}", str(path))


def may_define_operators(path: Path) -> bool:
    """Whether PyTorch's functions for defining an operator are among the names that a library uses.

    Most do not, and so need no look at all of PyTorch's operators before and after, which takes milliseconds.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(name) >= 0 for name in _DEFINING)
    except (OSError, ValueError):  # missing, unreadable or empty: opening it will say so
        return True


def _segment_ends(table: bytes, entry_size: int) -> list[int]:
    ends = []
    for start in range(0, len(table) - 55, entry_size):
        kind, _, offset, _, _, file_size = struct.unpack_from("<IIQQQQ", table, start)
        if kind == _LOAD:
            ends.append(offset + file_size)
    return ends
