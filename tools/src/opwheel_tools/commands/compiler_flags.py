"""``config --includes``, ``--cflags`` and ``--ldflags``: what a compiler is told to build a backend of a library."""

from __future__ import annotations

from opwheel import Library
from opwheel._build import toolchain
from opwheel._build.ninja_file import CXX_FLAGS, LIBRARIES

from .. import get_include


def compiler_flags(library: Library, option: str) -> list[str]:
    """The folders of the library's, opwheel's and PyTorch's headers, with ``"cflags"`` all of the compiler's flags.

    With ``"ldflags"`` those of the linker, behind the objects.
    """
    torch = toolchain.find_torch()
    if option == "ldflags":
        return [f"-L{torch.lib}", *LIBRARIES]
    folders = [f"-I{library.get_include()}", f"-I{get_include()}", f"-isystem{torch.include}"]
    return [*CXX_FLAGS, *toolchain.stable_abi_macros("2.10"), *folders] if option == "cflags" else folders
