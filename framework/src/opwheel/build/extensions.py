"""The description of one shared library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from setuptools import Extension


class CppLibrary(Extension):
    """A shared library without ``PyInit``: PyTorch opens it, Python does not import it.

    Args:
        name: dotted path of the file inside the wheel, without its suffix: ``"waves_cpu.libwaves_cpu"``.
        sources: source files, relative to ``setup.py``.
        torch_target: oldest torch release whose stable ABI is used, ``"2.10"`` or later. Features of a later one do not
            compile. None: PyTorch's C++ interface, which is that of one minor release alone.
        torch_folder: a folder with the package torch to build with; if None, the installed one.
        library: the operator library that a backend is for, an installed package: its headers are found as
            ``"<library>/operators.h"``.
        include_dirs: further folders of headers, relative to ``setup.py``.
        exports: names of C functions that others may look up, with wildcards. Everything else stays inside, so that two
            libraries cannot mix up their symbols and the loader can unload them.
        compile_args: appended to the compiler's command line.
        source_args: further ones for single sources: ``{"csrc/kernels_avx2.cpp": ["-mavx2"]}``.
        link_args: appended to the linker's command line.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[str],
        *,
        torch_target: str | None = "2.10",
        torch_folder: Path | None = None,
        library: str | None = None,
        include_dirs: Sequence[str] = (),
        exports: Sequence[str] = (),
        compile_args: Sequence[str] = (),
        source_args: Mapping[str, Sequence[str]] = MappingProxyType({}),
        link_args: Sequence[str] = (),
    ) -> None:
        super().__init__(
            name,
            list(sources),
            include_dirs=list(include_dirs),
            extra_compile_args=list(compile_args),
            extra_link_args=list(link_args),
            language="c++",
        )
        self.library = library
        self.torch_target = torch_target
        self.torch_folder = torch_folder
        self.exports = tuple(exports)
        self.source_args = {source: list(arguments) for source, arguments in source_args.items()}


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
