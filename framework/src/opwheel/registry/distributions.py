"""Finds the installed distributions that may be plugins, among hundreds that are none.

``importlib.metadata.distributions()`` makes an object of each, of which a file is read then. That takes twice as long
as to list the folders on sys.path, where nearly all distributions are, and to read that file of each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

_METADATA = (".dist-info", ".egg-info")
# A copy inside of another package, as in an exported kernel, has the metadata of its backends beside it.
_BESIDE = () if __name__.startswith("opwheel.") else (str(Path(__file__).parents[2]),)
_BLOCK = 1 << 16


def distributions_for(group: str) -> Iterator[metadata.Distribution]:
    """Those of ``importlib.metadata.distributions()``, in its order, that may have entry points of a group.

    Left out are those in folders on sys.path whose entry_points.txt has not the group's name, or cannot be read. A copy
    of opwheel inside of another package looks into the folder that it is in, too.
    """
    for finder in sys.meta_path:
        find = getattr(finder, "find_distributions", None)
        if finder is PathFinder and find is not None:
            for entry in (*sys.path, *_BESIDE):
                names = _names_in(entry)
                if names is None:
                    yield from find(metadata.DistributionFinder.Context(path=[entry]))
                else:
                    yield from _in_folder(entry or ".", names, group.encode())
        elif find is not None:  # that of an application's own, or of importlib_metadata, which takes Python's away
            yield from find(metadata.DistributionFinder.Context())


def _names_in(entry: str) -> list[str] | None:
    """What is in a folder on sys.path; None if it is an archive or something else that only Python knows to read."""
    if type(entry) is not str or entry.lower().endswith(".egg"):
        return None
    try:
        return os.listdir(entry or ".")  # noqa: PTH208  # a Path of each name takes as long as to read the files
    except FileNotFoundError:
        return []
    except OSError:
        return None


def _in_folder(folder: str, names: list[str], group: bytes) -> Iterator[metadata.Distribution]:
    for name in names:
        if name.endswith(_METADATA) or name.lower().endswith(_METADATA):
            path = f"{folder}/{name}/entry_points.txt"
            # Most have none, which an exception takes twice as long to say.
            if os.access(path, os.R_OK) and group in _content(path):
                yield metadata.PathDistribution(Path(folder, name))


def _content(path: str) -> bytes:
    """What is in a file; nothing if it cannot be read. In three calls of the system, as there may be hundreds."""
    content = b""
    with suppress(OSError):  # it is a folder, or was removed just now
        descriptor = os.open(path, os.O_RDONLY)
        try:
            content = block = os.read(descriptor, _BLOCK)
            while len(block) == _BLOCK:
                block = os.read(descriptor, _BLOCK)
                content += block
        finally:
            os.close(descriptor)
    return content


def name_and_version(distribution: metadata.Distribution) -> tuple[str | None, str | None]:
    """What the metadata of a distribution gives as its name and version.

    From the first lines of METADATA, where every build tool writes them. To read all of it, as ``importlib.metadata``
    does, is to parse the project's README as well.
    """
    lines = (distribution.read_text("METADATA") or "").split("\n", 3)
    if len(lines) == 4 and lines[0].startswith("Metadata-Version: ") and not lines[3].startswith((" ", "\t")):
        (first, _, name), (second, _, version) = (line.partition(": ") for line in lines[1:3])
        if (first, second) == ("Name", "Version") and (name, version) == (name.strip(), version.strip()):
            return name, version
    fields = distribution.metadata
    return fields["Name"], fields["Version"]
