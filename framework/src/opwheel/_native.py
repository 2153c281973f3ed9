"""The native libraries that were built for the installed PyTorch: derivatives, guards around memory, and calls."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from ._torch_release import native_library

_FOLDER = Path(__file__).parent / "native"


def library_file(name: str = "autograd") -> Path | str:
    """Where a library is, or why there is none.

    Args:
        name: ``autograd``, which has the guards as well, or ``calls``.
    """
    try:
        path = _FOLDER / native_library(name, torch.__version__)
    except ValueError as error:
        return str(error)
    return path if path.exists() else f"opwheel has no native library for torch {torch.__version__} ({path.name})"


def open_library() -> ctypes.CDLL | str:
    """The library with derivatives, guards and cache, opened, or why there is none."""
    path = library_file()
    if isinstance(path, str):
        return path
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        return str(error)
