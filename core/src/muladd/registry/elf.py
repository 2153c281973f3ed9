"""Looks at the header of a shared library before the dynamic loader does.

The loader maps a file that ends too early without complaint, and the process dies of SIGBUS at the first missing page.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_LOAD = 1  # p_type of a segment that is mapped


def check_complete(path: Path) -> None:
    """Check that a file has all the bytes its header speaks of. What is no ELF file is left to the loader.

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


def _segment_ends(table: bytes, entry_size: int) -> list[int]:
    ends = []
    for start in range(0, len(table) - 55, entry_size):
        kind, _, offset, _, _, file_size = struct.unpack_from("<IIQQQQ", table, start)
        if kind == _LOAD:
            ends.append(offset + file_size)
    return ends
