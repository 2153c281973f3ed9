"""What a library that was built with the C++ SDK says of itself in ELF notes (``opwheel/abi.h``).

It is read from the file and not asked of the open library, because opening a library registers its kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_NOTE = 4  # p_type of a segment with notes
_OWNER = b"opwheel\0"
_ABI, _SCHEMA = 1, 2  # types of notes


class BuiltWith(NamedTuple):
    """Which SDK a library was compiled against, and for which schemas."""

    abi: int | None
    """None if it was built without the SDK, or the file cannot be read."""
    schemas: tuple[str, ...]


def read_notes(path: Path) -> BuiltWith:
    """Read the notes of a file, of which there may be none."""
    abi = None
    schemas: dict[str, None] = {}
    try:
        for kind, value in _notes(path):
            if kind == _ABI and len(value) == 4 and abi is None:
                abi = int(struct.unpack("<i", value)[0])
            elif kind == _SCHEMA:
                schemas[value.rstrip(b"\0").decode()] = None
    except (OSError, ValueError, struct.error):  # opening the library will say what is wrong with it
        pass
    return BuiltWith(abi, tuple(schemas))


def _notes(path: Path) -> Iterator[tuple[int, bytes]]:
    """The type and value of each note of ours."""
    with path.open("rb") as file:
        header = file.read(64)
        if not header.startswith(_64_BIT_LITTLE_ENDIAN) or len(header) < 64:
            return
        (table,) = struct.unpack_from("<Q", header, 32)
        entry_size, count = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        entries = file.read(entry_size * count)
        for start in range(0, len(entries) - 55, entry_size):
            kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", entries, start)
            if kind == _NOTE:
                file.seek(offset)
                yield from _in_segment(file.read(size))


def _in_segment(notes: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 12 <= len(notes):
        name_size, value_size, kind = struct.unpack_from("<III", notes, at)
        name_at = at + 12
        value_at = name_at + (name_size + 3) // 4 * 4
        if notes[name_at : name_at + name_size] == _OWNER:
            yield kind, notes[value_at : value_at + value_size]
        at = value_at + (value_size + 3) // 4 * 4
