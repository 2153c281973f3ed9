"""Raises the version of this repository's packages in every file that has it: ``python -m release.version 0.2.0``.

muladd's packages, opwheel and its tools have one version: builds pin it (``opwheel-tools==0.1.0``), and packages
require its minor version (``muladd-core>=0.1,<0.2``).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PACKAGES = "(?:opwheel|opwheel-tools|muladd|muladd-(?:core|cpu|cuda|sycl|executorch))"
# What has a version of its own, or quotes one as it was.
_OTHERS = re.compile(r"^(libraries|examples/plugins|tests|docs|benchmarks)/|^(README|CHANGELOG)\.md$")
_OWN = re.compile(r"(^(?:__version__|version) = \")(\d+\.\d+\.\d+)(\"$)", re.MULTILINE)
_PINNED = re.compile(rf"(\b{_PACKAGES}==)(\d+\.\d+\.\d+)()")
_BOUNDS = re.compile(rf"(\b{_PACKAGES}>=)(\d+\.\d+,<\d+\.\d+)()")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m release.version", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", nargs="?", help="the new one; left out: print the present one, and where it is")
    options = parser.parse_args()
    if options.version is None:
        for file, text in mentions():
            print(f"{file}: {text}")
        return 0
    if not re.fullmatch(r"\d+\.\d+\.\d+", options.version):
        parser.error(f"{options.version!r} is no version, expected three numbers such as 0.2.0")
    changed = set_version(options.version)
    print(f"{options.version} in {len(changed)} files; CHANGELOG.md is yours to write")
    return 0


def tracked_files() -> list[Path]:
    """Of this repository, where the version may be."""
    listing = ["git", "ls-files", "*.toml", "*.py", "*.in"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True)
    return [Path(line) for line in listed.stdout.decode().splitlines() if line != "release/version.py"]


def mentions(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Files and what they say: the version, or the bounds that follow from it."""
    for file in tracked_files():
        text = (root / file).read_text()
        for pattern in _patterns(file):
            yield from ((file, match[2]) for match in pattern.finditer(text))


def bounds_of(version: str) -> str:
    """What packages require of each other: the same minor version."""
    major, minor, _ = version.split(".")
    return f"{major}.{minor},<{major}.{int(minor) + 1}"


def set_version(version: str, root: Path = ROOT) -> list[Path]:
    """Write it into every file; those that changed."""
    bounds = bounds_of(version)
    changed = []
    for file in tracked_files():
        before = text = (root / file).read_text()
        for pattern in _patterns(file):
            new = bounds if pattern is _BOUNDS else version
            text = pattern.sub(lambda match, new=new: f"{match[1]}{new}{match[3]}", text)
        if text != before:
            (root / file).write_text(text)
            changed.append(file)
    return changed


def _patterns(file: Path) -> list[re.Pattern[str]]:
    return [_PINNED, _BOUNDS] if _OTHERS.match(str(file)) else [_OWN, _PINNED, _BOUNDS]


if __name__ == "__main__":
    sys.exit(main())
