"""Whether an installed distribution still is what its wheel was, and a digest that says which wheel that was."""

from __future__ import annotations

import base64
import csv
import hashlib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

# What installers add to a dist-info folder depends on the installer; these come from the wheel.
_OF_THE_WHEEL = ("METADATA", "WHEEL", "entry_points.txt")


class InstalledWheel(NamedTuple):
    """One distribution: the digest of its wheel, its files on this machine, and what is wrong with them."""

    name: str
    version: str
    sha256: str
    files: frozenset[Path]
    problems: tuple[str, ...]


def wheel_digest(record: str) -> str:
    """A digest of all that a wheel contains, from its RECORD: equal before and after installation."""
    rows = "".join(f"{path},{digest}\n" for path, digest in sorted(_rows(record)))
    return hashlib.sha256(rows.encode()).hexdigest()


def read_installed(distribution: metadata.Distribution, name: str) -> InstalledWheel:
    """Read every file of the distribution and compare it with RECORD."""
    record = distribution.read_text("RECORD") or ""
    files, problems = set(), []
    for path, expected in _rows(record):
        place = Path(str(distribution.locate_file(path)))
        try:
            is_same = _hash(place, expected.partition("=")[0]) == expected
        except (OSError, ValueError):
            is_same = False
        if not is_same:
            problems.append(f"{path} of {name} is not what its wheel installed")
        files.add(place.resolve())
    if not files:
        problems.append(f"{name} is not installed from a wheel: it has no RECORD with hashes")
    return InstalledWheel(name, distribution.version, wheel_digest(record), frozenset(files), tuple(problems))


def _rows(record: str) -> list[tuple[str, str]]:
    rows = (row for row in csv.reader(record.splitlines()) if len(row) == 3)
    return [(path, digest) for path, digest, _ in rows if digest and _is_of_the_wheel(path)]


def _is_of_the_wheel(path: str) -> bool:
    folder, _, rest = path.partition("/")
    if folder.endswith(".dist-info"):
        return rest in _OF_THE_WHEEL
    # Scripts are written by the installer, outside of site-packages; byte code is written by anybody.
    return folder != ".." and not path.endswith(".pyc")


def _hash(path: Path, algorithm: str) -> str:
    digest = hashlib.new(algorithm, path.read_bytes()).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
