"""What kernels for an accelerator add to the build of a library."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class DeviceCode:
    """Additions to build.ninja; empty for a library of C++ alone."""

    lines: list[str] = field(default_factory=list)  # rules and edges
    objects: list[str] = field(default_factory=list)  # linked in after those of the library's own sources
    compile_flags: list[str] = field(default_factory=list)  # of the host code
    link_flags: list[str] = field(default_factory=list)
    seed_flag: str = "-frandom-seed"  # of the compiler for device code, in the place of a hash of path and process
    description: str = ""  # what the code was made for: written beside the library, in a JSON file of its name


def join(arguments: Sequence[str]) -> str:
    """A command line for build.ninja."""
    return shlex.join(arguments).replace("$", "$$")


def escape(path: object) -> str:
    """A path for build.ninja."""
    return str(path).replace("$", "$$").replace(":", "$:").replace(" ", "$ ")


def write_if_changed(path: Path, text: str) -> None:
    """Ninja rebuilds what depends on a file by the time of its last change."""
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
