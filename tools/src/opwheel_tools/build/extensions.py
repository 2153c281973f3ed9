"""The description of an operator library's shared library in C++."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opwheel._build.extensions import NativeLibrary
from opwheel._build.toolchain import ToolchainError

from .. import get_include

# What the SDK's headers define in a library for whoever opens it.
# The last are the C functions for AOTInductor (opwheel/detail/c_shim.h).
_SDK_EXPORTS = (
    "opwheel_set_huge_pages",
    "opwheel_set_result_cache",
    "opwheel_set_dispatcher",
    "_ZN*aoti_torch_*8functionE",
)


class CppLibrary(NativeLibrary):
    """A shared library on the C++ SDK: an operator library's schemas, or a backend's kernels.

    Args:
        name: dotted path of the file inside the wheel, without its suffix: ``"waves_cpu.libwaves_cpu"``.
        sources: source files, relative to ``setup.py``.
        library: the operator library that a backend is for, an installed package: its headers are found as
            ``"<library>/operators.h"``.
        torch_target: oldest torch release whose stable ABI is used, ``"2.10"`` or later. Features of a later one do not
            compile.
        exports: names of C functions that others may look up, with wildcards, besides those of the SDK.
        options: the others of :class:`~opwheel._build.extensions.NativeLibrary`: ``include_dirs``, ``compile_args``,
            ``source_args`` and ``link_args``.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[str],
        *,
        library: str | None = None,
        torch_target: str | None = "2.10",
        exports: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(name, sources, torch_target=torch_target, exports=(*_SDK_EXPORTS, *exports), **options)
        self.library = library

    def headers(self) -> dict[Path, str]:
        """The operator library's headers and the SDK's."""
        of_library = {library_include(self.library): f"{self.library}/include"} if self.library else {}
        return {**of_library, Path(get_include()): "opwheel/include"}


def library_include(package: str) -> Path:
    """The folder of an installed operator library's headers; the package is not imported.

    Raises:
        ToolchainError: it is not installed.
    """
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ToolchainError(
            f"the operator library {package!r} is not installed in this environment. Install its core package first, "
            "and build with --no-build-isolation."
        )
    return Path(next(iter(folders))) / "include"
