"""Archives with the same bytes wherever they are made: source distributions, and wheels that are made from others."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
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


def write_wheel(files: Mapping[str, bytes], path: Path, time: tuple[int, int, int, int, int, int]) -> None:
    """Write a wheel.

    Args:
        files: contents by name; RECORD, which is written anew, keeps its place.
        path: the file to write.
        time: of every file in it, as ``zipfile.ZipInfo.date_time``.
    """
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, "", ""] if name == record else [name, f"sha256={digest}", len(content)])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, time)
            info.external_attr = 0o100644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, text.getvalue() if name == record else content)
