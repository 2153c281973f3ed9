"""Where Python takes a package from, and whether that hides the installed one, as a folder of sources often does.

Imported only where something has failed.
"""

from __future__ import annotations

import os
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple


class Hiding(NamedTuple):
    """What hides a package, and what to do."""

    reason: str
    fix: str


def find_hiding(package: str, distribution: str) -> Hiding | None:
    """What hides a distribution's package; None if Python takes the installed one, or none is installed.

    Args:
        package: name of a top-level package or module.
        distribution: what installs it.
    """
    used = origin_of(package)
    places = [(found, _place(found, package)) for found in metadata.distributions(name=distribution)]
    if used is None or any(place == used and _is_installed(found) for found, place in places):
        return None
    hidden = next((place for _, place in places if place not in (used, None)), None)
    if hidden is None:
        return None
    reason = f"Python takes {package} from {used}, which hides the installed one, {hidden}"
    if is_current(used.parent):
        return Hiding(reason, f"leave the folder {used.parent}: start Python in another one")
    return Hiding(reason, f"take {used.parent} off sys.path (PYTHONPATH?), or remove {used}")


def origin_of(package: str) -> Path | None:
    """The folder of a top-level package, or the file of a module, that Python would import. Runs nothing of it."""
    spec = PathFinder.find_spec(package) if package.isidentifier() else None
    # A folder without __init__.py has no origin: it hides nothing.
    return None if spec is None or spec.origin is None else _package_of(Path(spec.origin))


def is_current(folder: Path) -> bool:
    """Whether Python was started in that folder, or has gone there."""
    return folder.exists() and folder.samefile(os.curdir)  # which can be asked although it has been deleted


def _place(found: metadata.Distribution, package: str) -> Path | None:
    files = (Path(str(found.locate_file(name))) for name in (f"{package}/__init__.py", f"{package}.py"))
    return next((_package_of(file) for file in files if file.exists()), None)


def _is_installed(found: metadata.Distribution) -> bool:
    """Whether an installer has put it there: a folder of sources that was built has an egg-info."""
    return str(getattr(found, "_path", "")).endswith(".dist-info")


def _package_of(file: Path) -> Path:
    file = Path(os.path.realpath(file))
    return file.parent if file.name == "__init__.py" else file
