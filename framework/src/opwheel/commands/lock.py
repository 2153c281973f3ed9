"""Record the installed wheels and the chosen backends, or compare with what was recorded.

Where <LIBRARY>_LOCK names the file, importing the library fails on any difference.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..registry.errors import LockError
from ..text import printable
from .target import Target, UsageError

if TYPE_CHECKING:
    from .. import Library
    from ..registry import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which file, and whether to write it."""
    parser.add_argument("file", nargs="?", type=Path, help="the lock file; by default LIBRARY.lock")
    parser.add_argument("--check", action="store_true", help="write nothing; name every difference")


def run(given: argparse.Namespace, target: Target) -> int:
    """Write the file, or print the differences."""
    # What is locked already need not be what is installed.
    library = target.open(check_lock=False)
    file = given.file or Path(f"{library.namespace}.lock")
    try:
        found = _compare(library, file) if given.check else _write(library, file)
    except LockError as error:
        print(f"{library.namespace}: {error}")
        return 1
    return 1 if found else 0


def _compare(library: Library, file: Path) -> list[Finding]:
    found = library.compare(str(file))
    told = "\n  ".join([f"{file}:", *(finding.message for finding in found)]) if found else f"{file}: no difference"
    print(printable(told))
    return found


def _write(library: Library, file: Path) -> list[Finding]:
    snapshot = library.snapshot()
    try:
        file.write_text(snapshot.as_text(library.namespace))
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
    print(printable(f"{file}: {_contents(snapshot.distributions, snapshot.winners)}"))
    return []


def _contents(distributions: dict[str, dict[str, str]], winners: dict[str, dict[str, str]]) -> str:
    wheels = ", ".join(f"{name} {wheel['version']}" for name, wheel in distributions.items())
    keys = "; ".join(f"{key}: {', '.join(sorted(set(chosen.values())))}" for key, chosen in winners.items())
    return f"locked {wheels}; winners: {keys or 'none'}"
