"""The descriptions of an operator library's shared libraries: C++, CUDA, SYCL."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opwheel._build.device_code import DeviceCode
from opwheel._build.extensions import NativeLibrary
from opwheel._build.toolchain import ToolchainError

from .. import get_include

# What the SDK's headers define in a library for whoever opens it.
_SDK_EXPORTS = ("opwheel_set_huge_pages", "opwheel_set_result_cache", "opwheel_set_dispatcher")


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


class CudaLibrary(CppLibrary):
    """A shared library of which some sources are CUDA (``.cu``). Built without a GPU; the CUDA runtime is linked in.

    Beside the library comes a JSON file of the same name that says what it was built for: ``cuda`` (the release),
    ``architectures`` and ``ptx`` (compute capabilities).

    Args:
        name: as for :class:`CppLibrary`.
        sources: ``.cpp`` files go to the C++ compiler, ``.cu`` files to nvcc.
        cuda: the CUDA release to build with; any of its major release will do.
        architectures: compute capabilities to make machine code for: ``"9.0"``.
        ptx: compute capabilities to include PTX for, which drivers compile for newer devices.
        options: as for :class:`CppLibrary`.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[str],
        *,
        cuda: str,
        architectures: Sequence[str],
        ptx: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(name, sources, **options)
        self.cuda = cuda
        self.architectures = tuple(architectures)
        self.ptx = tuple(ptx)

    def device_code(self, build_dir: Path) -> DeviceCode:
        """Rules for nvcc."""
        from . import cuda

        return cuda.device_code(self, build_dir)


class SyclLibrary(CppLibrary):
    """A library with kernels in SYCL C++, which are compiled into images that it embeds (``opwheel/device_image.h``).

    Args:
        name: as for :class:`CppLibrary`.
        sources: the host code.
        device_source: the file with the kernels, as free functions. What it includes with quotes is embedded along.
        images: options of the device compiler for each image, by the image's name.
        libsycl: the runtime that the library is for, which has to be the one in PyTorch: ``"libsycl.so.9"``.
        options: as for :class:`CppLibrary`.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[str],
        *,
        device_source: str,
        images: Mapping[str, Sequence[str]],
        libsycl: str,
        **options: Any,
    ) -> None:
        super().__init__(name, sources, **options)
        self.device_source = device_source
        self.images = {image: tuple(arguments) for image, arguments in images.items()}
        self.libsycl = libsycl

    def device_code(self, build_dir: Path) -> DeviceCode:
        """Rules for the SYCL compiler, and the images as a source."""
        from . import sycl

        return sycl.device_code(self, build_dir)


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
