"""Reads files that variables and plugins name: of a pipe or a device, reading may never end, and opening may act."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: it cannot be opened, or is no regular file; then it was not opened.
    """
    kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    if kind is not None:
        number = errno.EISDIR if kind == "a directory" else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a regular file", str(path))
    return path.open("rb")


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a file of at most ``limit`` bytes.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))
    return content


def in_full(path: Path) -> Path:
    """The path from the root, so that a message names the folder; as it is where the current folder is gone."""
    try:
        return path.absolute()
    except OSError:
        return path
