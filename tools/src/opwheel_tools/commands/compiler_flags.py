"""``config --includes`` and ``--cflags``: what a compiler is told to build a backend of a library."""

from __future__ import annotations

from opwheel import Library
from opwheel._build import toolchain
from opwheel._build.ninja_file import CXX_FLAGS

from .. import get_include


def compiler_flags(library: Library, *, everything: bool) -> list[str]:
    """The folders of the library's, opwheel's and PyTorch's headers, and with ``everything`` all other flags."""
    torch = toolchain.find_torch().include
    folders = [f"-I{library.get_include()}", f"-I{get_include()}", f"-isystem{torch}"]
    return [*CXX_FLAGS, *toolchain.stable_abi_macros("2.10"), *folders] if everything else folders
