"""Why a distribution is not found: it is not installed, or its metadata was not taken along.

Programs that are frozen (PyInstaller), zipped or copied together often have a package without its dist-info folder,
and without that there are no entry points. Imported only where something is not found.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import NamedTuple

from .hiding import origin_of


class Absence(NamedTuple):
    """What is the matter, as a predicate, and what to do."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"


def find_absence(distribution: str, hint: str) -> Absence:
    """Why there is no sign of a distribution.

    Args:
        distribution: its name. Its package has the same one, by convention.
        hint: how to install it.
    """
    package = distribution.replace("-", "_")
    origin = origin_of(package)
    is_frozen = bool(getattr(sys, "frozen", False))  # as PyInstaller, cx_Freeze and py2exe set it
    if origin is None and not is_frozen:
        return Absence("is not installed", hint)
    what = "is not in this application" if origin is None else f"is not found, though there is {origin}"
    files = f"the folder {package}-*.dist-info with METADATA and entry_points.txt"
    if is_frozen:
        options = f"PyInstaller: --collect-all {package} --copy-metadata {distribution}"
        return Absence(what, f"bundle the package {package} and {files} ({options})")
    what += f"; {_what_is_missing(distribution)}"
    return Absence(what, f"put {files} beside {origin}; if that is a folder of sources, leave it, and {hint}")


def _what_is_missing(distribution: str) -> str:
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return f"the metadata of {distribution} is missing"
    return f"its entry point is missing in {getattr(found, '_path', 'the metadata')}"
