"""The native libraries that were built for the installed PyTorch: autograd, calls, memory."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from .release import native_library

_FOLDER = Path(__file__).parent.parent / "native"


def library_file(name: str) -> Path | str:
    """Where a library is, or why there is none.

    Args:
        name: ``autograd``, ``calls``, ``memory`` or ``foreign``.
    """
    try:
        path = _FOLDER / native_library(name, torch.__version__)
    except ValueError as error:
        return str(error)
    return path if path.exists() else f"opwheel has no native library for torch {torch.__version__} ({path.name})"


def open_library(name: str) -> ctypes.CDLL | str:
    """The library of :func:`library_file`, opened, or why there is none."""
    path = library_file(name)
    if isinstance(path, str):
        return path
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        return str(error)
