"""What a library that was built with the C++ SDK says of itself in ELF notes (``opwheel/detail/abi.h``).

It is read from the file and not asked of the open library, because opening a library registers its kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from .elf import note_segments

_OWNER = b"opwheel\0"
_ABI, _SCHEMA, _CALLEE = 1, 2, 3  # types of notes


class BuiltWith:
    """Which SDK a library was compiled against, and for which schemas.

    ``abi`` is None if it was built without the SDK, or the file cannot be read. ``callees`` are the schemas of the
    operators that its kernels call, with their namespaces.
    """

    def __init__(self, abi: int | None, schemas: tuple[str, ...], callees: tuple[str, ...]) -> None:
        self.abi = abi
        self.schemas = schemas
        self.callees = callees


def read_notes(path: Path) -> BuiltWith:
    """Read the notes of a file, of which there may be none."""
    abi = None
    schemas: dict[str, None] = {}
    callees: dict[str, None] = {}
    try:
        notes = [note for segment in note_segments(path) for note in _in_segment(segment)]
        for kind, value in notes:
            if kind == _ABI and len(value) == 4 and abi is None:
                abi = int(struct.unpack("<i", value)[0])
            elif kind == _SCHEMA:
                schemas[value.rstrip(b"\0").decode()] = None
            elif kind == _CALLEE:
                callees[value.rstrip(b"\0").decode()] = None
    except (OSError, ValueError):  # opening the library will say what is wrong with it
        pass
    return BuiltWith(abi, tuple(schemas), tuple(callees))


def _in_segment(notes: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 12 <= len(notes):
        name_size, value_size, kind = struct.unpack_from("<III", notes, at)
        name_at = at + 12
        value_at = name_at + (name_size + 3) // 4 * 4
        if notes[name_at : name_at + name_size] == _OWNER:
            yield kind, notes[value_at : value_at + value_size]
        at = value_at + (value_size + 3) // 4 * 4
