"""Source distributions with the same bytes wherever they are made."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path


def normalize_sdist(path: Path, epoch: int) -> None:
    """Write the archive again, without what depends on the machine: order, times, owners, modes."""
    buffer = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.mtime = member.type, member.size, epoch
            clean.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(clean, old.extractfile(member))
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as compressed:
        compressed.write(buffer.getvalue())


def unpack_sdist(path: Path, folder: Path) -> Path:
    """The project's folder inside of the archive."""
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4, and security releases of those before
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)  # noqa: S202  # made by build() a moment ago
    return folder / path.name.removesuffix(".tar.gz")
