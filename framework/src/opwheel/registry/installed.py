"""Whether an installed distribution still is what its wheel was, and a digest that says which wheel that was."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Iterable, Iterator, Set
from importlib import metadata
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..text import describe_exception

# What installers add to a dist-info folder depends on the installer; these come from the wheel.
_OF_THE_WHEEL = ("METADATA", "WHEEL", "entry_points.txt")
_CACHE = "__pycache__"


class InstalledWheel(NamedTuple):
    """One distribution: the digest of its wheel, what it has on this machine, and what is wrong with that.

    ``paths`` are its files and folders, ``modules`` the names under which Python imports them.
    """

    name: str
    version: str
    sha256: str
    paths: frozenset[str]
    modules: tuple[str, ...]
    problems: tuple[str, ...]

    def has(self, path: str) -> bool:
        """Whether that is one of its files or folders."""
        folder, name = os.path.split(path)
        return f"{os.path.realpath(folder)}/{name}" in self.paths


def wheel_digest(record: str) -> str:
    """A digest of all that a wheel contains, from its RECORD: equal before and after installation."""
    rows = "".join(f"{path},{digest}\n" for path, digest in sorted(_rows(record).items()))
    return hashlib.sha256(rows.encode()).hexdigest()


def read_installed(distribution: metadata.Distribution, name: str) -> InstalledWheel:
    """Compare every file of the distribution with RECORD, and look for what Python could run instead of them."""
    record = distribution.read_text("RECORD") or ""
    root = str(Path(str(distribution.locate_file(""))).absolute())
    place = getattr(distribution, "_path", None) or root
    rows = _rows(record)
    folders = {folder for path in rows for folder in _folders_around(path)}
    roots = {folder for folder in folders if "/" not in folder and not folder.endswith(".dist-info")}
    added = {path for folder in roots for path in _files_in(root, folder, folders)} - rows.keys()
    problems = [
        *(f"{path} of {name} is not what its wheel installed" for path in rows if not _is_same(root, path, rows[path])),
        *(f"{path} is in a folder of {name}, but no file of its wheel" for path in sorted(added)),
        *([] if rows else [f"{name} is not installed from a wheel: it has no RECORD with hashes ({place})"]),
    ]
    modules = {folder for folder in roots if folder.isidentifier()} | {
        _module(path) for path in rows if "/" not in path
    }
    return InstalledWheel(
        name=name,
        version=distribution.version,
        sha256=wheel_digest(record),
        paths=_without_links(root, rows.keys() | folders),
        modules=tuple(sorted(modules - {""})),
        problems=tuple(problems),
    )


def found_elsewhere(wheel: InstalledWheel) -> Iterator[str]:
    """Which of the wheel's modules Python would import, or has imported, from another place. Runs none of them."""
    for module in wheel.modules:
        try:
            spec = find_spec(module)
        except Exception as error:  # a finder of another package fails, or the module was put in place by hand
            yield f"the module {module!r} of {wheel.name} cannot be located: {describe_exception(error)}"
            continue
        if spec is not None:  # else the import fails, too
            places = [place for place in (spec.origin, *(spec.submodule_search_locations or ())) if place is not None]
            yield from (
                f"{place} is used, but is not a file of {wheel.name}" for place in places if not wheel.has(place)
            )


def _rows(record: str) -> dict[str, str]:
    rows = (row for row in csv.reader(record.splitlines()) if len(row) == 3)
    return {path: digest for path, digest, _ in rows if digest and _is_of_the_wheel(path)}


def _is_of_the_wheel(path: str) -> bool:
    folder, _, rest = path.partition("/")
    if folder.endswith(".dist-info"):
        return rest in _OF_THE_WHEEL
    # Scripts are written by the installer, outside of site-packages; what is in __pycache__ is written by anybody.
    return folder != ".." and _CACHE not in path.split("/")


def _is_same(root: str, path: str, expected: str) -> bool:
    algorithm = expected.partition("=")[0]
    try:
        with open(f"{root}/{path}", "rb", buffering=0) as file:  # noqa: PTH123  # of hundreds of files
            digest = hashlib.new(algorithm, file.read()).digest()
    except (OSError, ValueError, TypeError):  # also of an algorithm that is none, or that wants to know a length
        return False
    return expected == f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _files_in(root: str, folder: str, folders: Set[str]) -> Iterator[str]:
    """Every file in a folder and in those below it; of ``__pycache__``, which many tools use, what one can import.

    A link to a folder counts as a file, as it may lead to a folder around it, unless the wheel has a folder there.
    """
    try:
        entries = list(os.scandir(f"{root}/{folder}"))
    except OSError:  # then Python finds nothing there either
        return
    is_cache = _CACHE in folder.split("/")
    for entry in entries:
        path = f"{folder}/{entry.name}"
        if path in folders or entry.is_dir(follow_symlinks=False):
            yield from _files_in(root, path, folders)
        elif not is_cache or _module(entry.name):
            yield path


def _module(file: str) -> str:
    """The name under which Python imports a file; empty if it does not."""
    names = [file.removesuffix(suffix) for suffix in all_suffixes() if file.endswith(suffix)]
    return next((name for name in names if name.isidentifier()), "")


def _folders_around(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _without_links(root: str, paths: Iterable[str]) -> frozenset[str]:
    parts = [path.rpartition("/")[::2] for path in paths]
    real = {folder: os.path.realpath(f"{root}/{folder}") for folder, _ in parts}
    return frozenset(f"{real[folder]}/{name}" for folder, name in parts)
