"""The native library that was built for the installed PyTorch: derivatives in C++, and guards around memory."""

from __future__ import annotations

from pathlib import Path

import torch

from ._torch_release import native_library

_FOLDER = Path(__file__).parent / "native"


def library_file() -> Path | str:
    """Where it is, or why there is none."""
    try:
        path = _FOLDER / native_library(torch.__version__)
    except ValueError as error:
        return str(error)
    return path if path.exists() else f"opwheel has no native Autograd library for torch {torch.__version__}"
