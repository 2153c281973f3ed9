"""The ABI number of a library that was built with the C++ SDK: which SDK it was compiled against."""

from __future__ import annotations

import struct
from pathlib import Path

_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_NOTE = 4  # p_type of a segment with notes
_OWNER = b"opwheel\0"


def read_abi(path: Path) -> int | None:
    """The number in the ELF note that ``opwheel/abi.h`` writes; None if there is none, or the file cannot be read.

    It is read from the file and not asked of the open library, because opening a library registers its kernels.
    """
    try:
        with path.open("rb") as file:
            header = file.read(64)
            if not header.startswith(_64_BIT_LITTLE_ENDIAN) or len(header) < 64:
                return None
            (table,) = struct.unpack_from("<Q", header, 32)
            entry_size, count = struct.unpack_from("<HH", header, 54)
            file.seek(table)
            entries = file.read(entry_size * count)
            for start in range(0, len(entries) - 55, entry_size):
                kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", entries, start)
                if kind == _NOTE:
                    file.seek(offset)
                    value = _find(file.read(size))
                    if value is not None:
                        return value
    except (OSError, ValueError, struct.error):  # opening the library will say what is wrong with it
        pass
    return None


def _find(notes: bytes) -> int | None:
    at = 0
    while at + 12 <= len(notes):
        name_size, value_size, _ = struct.unpack_from("<III", notes, at)
        name_at = at + 12
        value_at = name_at + (name_size + 3) // 4 * 4
        if notes[name_at : name_at + name_size] == _OWNER and value_size == 4:
            return int(struct.unpack_from("<i", notes, value_at)[0])
        at = value_at + (value_size + 3) // 4 * 4
    return None
