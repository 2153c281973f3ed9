"""Folders with a kernel in the layout of Hugging Face's kernels Hub, loaded as its package does."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType


def is_kernel(text: str) -> bool:
    """Whether a text is the path of a kernel's folder, or of one of its variants."""
    folder = Path(text)
    return (folder / "metadata.json").is_file() or any(folder.glob("build/*/metadata.json"))


def load(text: str) -> ModuleType:
    """The kernel's module for this system, whose name is the namespace of its operators. Without a network.

    Raises:
        ImportError: the package kernels is not installed, or the kernel has no variant for this system.
    """
    try:
        from kernels import get_local_kernel
    except ImportError as error:
        raise ImportError(f"{text} is a kernel, which the package kernels loads: pip install kernels") from error
    try:
        kernel: ModuleType = get_local_kernel(Path(text).resolve())
    except FileNotFoundError as error:
        raise ImportError(f"{text} cannot be loaded here: {error}") from error
    return kernel


def statements(text: str) -> list[str]:
    """Python that loads it as ``kernel``."""
    return [
        "from pathlib import Path",
        "from kernels import get_local_kernel",
        f"kernel = get_local_kernel(Path({str(Path(text).resolve())!r}))",
    ]
