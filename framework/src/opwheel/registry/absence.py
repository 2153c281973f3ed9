"""Why a distribution is not found: it is not installed, or its metadata was not taken along.

Programs that are frozen (PyInstaller), zipped or copied together often have a package without its dist-info folder,
and without that there are no entry points. Imported only where something is not found.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
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
    bundling = how_to_bundle(package, distribution)
    if origin is None:
        return Absence("is not in this application", bundling) if bundling else Absence("is not installed", hint)
    what = f"is not found, though there is {origin}"
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        what += f"; the metadata of {distribution} is missing"
        fix = f"put {_metadata_of(distribution)} beside {origin}; if that is a folder of sources, leave it, and {hint}"
    else:
        what += f"; its entry point is missing in {getattr(found, '_path', 'the metadata')}"
        fix = f"put its entry_points.txt there, or install it again: {hint}"
    return Absence(what, bundling or fix)


def not_a_folder(path: Path, namespace: str, distribution: str) -> ImportError:
    """The error of an import of a library whose package is part of an archive."""
    advice = how_to_bundle(namespace, distribution) or "unpack the archive, or install the wheel"
    return ImportError(
        f"{distribution} cannot be imported from {path}: the system opens shared libraries only where they are files; "
        f"{advice}"
    )


def how_to_bundle(package: str, distribution: str) -> str:
    """What a frozen application needs of a distribution, and PyInstaller's options for it; elsewhere empty."""
    if not getattr(sys, "frozen", False):  # as PyInstaller, cx_Freeze and py2exe set it
        return ""
    options = f"PyInstaller: --collect-all {package} --copy-metadata {distribution}"
    return f"bundle all files of the package {package}, and {_metadata_of(distribution)} ({options})"


def _metadata_of(distribution: str) -> str:
    return f"the folder {distribution.replace('-', '_')}-*.dist-info with METADATA and entry_points.txt"
