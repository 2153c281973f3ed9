"""The release that each symbol of PyTorch's stable C interface came with, from the headers of the installed PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch

_FOLDERS = ("csrc/stable/c", "csrc/inductor/aoti_torch/c", "csrc/inductor/aoti_torch/generated")
_OPENS = re.compile(r"#\s*if")
_CLOSES = re.compile(r"#\s*endif")
_RELEASE = re.compile(r"#\s*if TORCH_FEATURE_VERSION >= TORCH_VERSION_(\d+)_(\d+)_\d+")
_NAME = re.compile(r"\b((?:aoti_)?torch_\w+)\(")
_OLDEST = (2, 9)  # what no header puts a release to was there before 2.10, the first that says it


def lowest(symbols: Iterable[str]) -> str:
    """The lowest release of PyTorch that has all of these symbols.

    Returns:
        ``"2.10"`` for example, ``"2.9 or older"``, or empty where the installed PyTorch does not declare one of them.
    """
    known = _releases()
    found = [known.get(name) for name in symbols]
    if None in found:
        return ""
    newest = max((release for release in found if release), default=_OLDEST)
    return ".".join(map(str, newest)) + (" or older" if newest == _OLDEST else "")


@cache
def _releases() -> dict[str, tuple[int, int]]:
    include = Path(torch.__file__).parent / "include/torch"
    found: dict[str, tuple[int, int]] = {}
    for folder in _FOLDERS:
        for header in sorted((include / folder).glob("*.h")):
            for name, release in _declared(header.read_text()):
                found[name] = min(release, found.get(name, release))
    return found


def _declared(header: str) -> Iterable[tuple[str, tuple[int, int]]]:
    """Each name that a header declares, with the release of the innermost condition around it that names one."""
    around = [_OLDEST]
    for line in header.splitlines():
        if _OPENS.match(line):
            release = _RELEASE.match(line)
            around.append((int(release[1]), int(release[2])) if release else around[-1])
        elif _CLOSES.match(line):
            around.pop()
        elif not line.lstrip().startswith("//"):
            yield from ((name, around[-1]) for name in _NAME.findall(line))
