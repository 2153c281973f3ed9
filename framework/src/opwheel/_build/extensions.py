"""The description of one shared library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from setuptools import Extension

from .device_code import DeviceCode


class NativeLibrary(Extension):
    """A shared library without ``PyInit``: PyTorch or ctypes opens it, Python does not import it.

    Args:
        name: dotted path of the file inside the wheel, without its suffix: ``"waves_cpu.libwaves_cpu"``.
        sources: source files, relative to ``setup.py``.
        torch_target: oldest torch release whose stable ABI is used, ``"2.10"`` or later. Features of a later one do not
            compile. None: PyTorch's C++ interface, which is that of one minor release alone.
        torch_folder: a folder with the package torch to build with; if None, the installed one.
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
        torch_target: str | None = None,
        torch_folder: Path | None = None,
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
        self.torch_target = torch_target
        self.torch_folder = torch_folder
        self.exports = tuple(exports)
        self.source_args = {source: list(arguments) for source, arguments in source_args.items()}

    def headers(self) -> dict[Path, str]:
        """Folders of installed headers, besides PyTorch's, and what stands for each in the library's messages.

        Raises:
            ToolchainError: a package whose headers are needed is not installed.
        """
        return {}

    def device_code(self, build_dir: Path) -> DeviceCode:
        """What kernels for an accelerator add to the build; their sources are written into ``build_dir``.

        Raises:
            ToolchainError: their compiler is missing.
        """
        return DeviceCode()
