"""Looks at a shared library before the dynamic loader does."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import BinaryIO

from .regular_files import open_regular

_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
# aoti_torch_library_def of the stable ABI, torch::Library::_def of the C++ interface.
_DEFINING = (b"torch_library_def", b"torch7Library4_def")
_HEADER_SIZE = 64
_SEGMENT = struct.Struct("<IIQQQQ16x")  # type, flags, place in the file, address, -, bytes in the file
_LOAD, _DYNAMIC, _NOTE = 1, 2, 4  # types: mapped; what the dynamic loader reads; notes
_STRING_TABLE, _STRING_TABLE_SIZE = 5, 10  # d_tag: where in memory the names are, and how many bytes they have


class _Segment:
    def __init__(self, kind: int, begin: int, address: int, size: int) -> None:
        self.type = kind
        self.begin = begin
        self.address = address
        self.size = size

    @property
    def end(self) -> int:
        return self.begin + self.size


def check_complete(path: Path) -> None:
    """Check that a file has all the bytes its header speaks of. What is no ELF file is left to the loader.

    The loader maps a file that ends too early without complaint, and the process dies of SIGBUS at the first missing
    page.

    Raises:
        OSError: it has not, or cannot be read.
    """
    with open_regular(path) as file:
        _, needed = _table(file)
        needed = max([needed, *(segment.end for segment in _segments(file) if segment.type == _LOAD)])
        size = os.fstat(file.fileno()).st_size
    if size < needed:
        raise OSError(errno.ENOEXEC, f"truncated: {size} bytes of at least {needed}", str(path))


def may_define_operators(path: Path) -> bool:
    """Whether PyTorch's functions for defining an operator are among the names that a library uses.

    Most do not, and so need no look at all of PyTorch's operators before and after, which takes milliseconds.
    """
    try:
        with open_regular(path) as file:
            names = _dynamic_names(file)
    except (OSError, ValueError, KeyError):
        # It is missing, empty or no library: opening it will say so.
        return True
    return any(name in names for name in _DEFINING)


def note_segments(path: Path) -> list[bytes]:
    """The contents of the segments that have notes; none where the file is no library.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        return [_part(file, segment.begin, segment.size) for segment in _segments(file) if segment.type == _NOTE]


def _table(file: BinaryIO) -> tuple[int, int]:
    """Where the table of segments begins and ends; (0, 0) in what the loader refuses."""
    header = _part(file, 0, _HEADER_SIZE)
    if len(header) < _HEADER_SIZE or not header.startswith(_64_BIT_LITTLE_ENDIAN):
        return 0, 0
    (begin,) = struct.unpack_from("<Q", header, 32)
    entry_size, count = struct.unpack_from("<HH", header, 54)
    return (begin, begin + count * _SEGMENT.size) if entry_size == _SEGMENT.size else (0, 0)


def _segments(file: BinaryIO) -> list[_Segment]:
    """Those that the file has, which may end before its table does."""
    begin, end = _table(file)
    table = _part(file, begin, end - begin)
    table = table[: len(table) // _SEGMENT.size * _SEGMENT.size]
    return [_Segment(kind, place, address, size) for kind, _, place, address, _, size in _SEGMENT.iter_unpack(table)]


def _part(file: BinaryIO, begin: int, size: int) -> bytes:
    """What the file has of it: a damaged header may speak of more than there is memory."""
    total = os.fstat(file.fileno()).st_size
    file.seek(min(begin, total))
    return file.read(min(size, total))


def _dynamic_names(file: BinaryIO) -> bytes:
    """The table of the names by which the dynamic loader finds functions.

    Raises:
        KeyError, ValueError: it is not where the ELF format has it.
    """
    segments = _segments(file)
    dynamic = {segment.type: segment for segment in segments}[_DYNAMIC]
    content = _part(file, dynamic.begin, dynamic.size)
    entries = dict(struct.iter_unpack("<QQ", content[: len(content) // 16 * 16]))
    address, size = entries[_STRING_TABLE], entries[_STRING_TABLE_SIZE]
    for segment in segments:
        if segment.type == _LOAD and segment.address <= address < segment.address + segment.size:
            return _part(file, segment.begin + address - segment.address, size)
    raise ValueError("no segment has the names")
