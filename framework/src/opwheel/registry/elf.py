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
_ENTRY_SIZE = 56  # bytes that the table of segments has for each of them
_LOAD, _DYNAMIC = 1, 2  # p_type of a segment that is mapped, and of that which the dynamic loader reads
_STRING_TABLE, _STRING_TABLE_SIZE = 5, 10  # d_tag: where in memory the names are, and how many bytes they have


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
        if entry_size != _ENTRY_SIZE:  # the loader refuses it
            return
        needed, size = offset + entry_size * count, os.fstat(file.fileno()).st_size
        if needed <= size:
            file.seek(offset)
            needed = max([needed, *_segment_ends(file.read(entry_size * count))])
    if size < needed:
        raise OSError(errno.ENOEXEC, f"truncated: {size} bytes of at least {needed}", str(path))


def may_define_operators(path: Path) -> bool:
    """Whether PyTorch's functions for defining an operator are among the names that a library uses.

    Most do not, and so need no look at all of PyTorch's operators before and after, which takes milliseconds.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            names = _dynamic_names(content)
            return any(name in names for name in _DEFINING)
    except (OSError, ValueError, KeyError, OverflowError, struct.error):
        # It is missing, empty or no library: opening it will say so.
        return True


def _dynamic_names(content: mmap.mmap) -> bytes:
    """The table of the names by which the dynamic loader finds functions.

    Raises:
        KeyError, ValueError, OverflowError, struct.error: it is not where the ELF format has it.
    """
    if content[: len(_64_BIT_LITTLE_ENDIAN)] != _64_BIT_LITTLE_ENDIAN:
        raise ValueError("fields are elsewhere in other ELF files")
    (table,) = struct.unpack_from("<Q", content, 32)
    entry_size, count = struct.unpack_from("<HH", content, 54)
    headers = [struct.unpack_from("<IIQQQQ", content, table + index * entry_size) for index in range(count)]
    places = {kind: (offset, size) for kind, _, offset, _, _, size in headers}
    start, size = places[_DYNAMIC]
    entries = dict(struct.iter_unpack("<QQ", content[start : start + size]))
    address, length = entries[_STRING_TABLE], entries[_STRING_TABLE_SIZE]
    for kind, _, offset, segment, _, size in headers:
        if kind == _LOAD and segment <= address < segment + size:
            return content[offset + address - segment : offset + address - segment + length]
    raise ValueError("no segment has the names")


def _segment_ends(table: bytes) -> list[int]:
    ends = []
    for start in range(0, len(table), _ENTRY_SIZE):
        kind, _, offset, _, _, file_size = struct.unpack_from("<IIQQQQ", table, start)
        if kind == _LOAD:
            ends.append(offset + file_size)
    return ends
