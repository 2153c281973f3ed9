"""Libraries with SYCL kernels: finds the compiler, and says how ninja makes device images and embeds them.

With icpx on PATH it compiles the images, ahead of time for the GPUs of ``TORCH_XPU_ARCH_LIST``. Without it the DPC++
front end inside of the package intel-sycl-rt makes them, as SPIR-V that any Intel GPU's driver takes: a module for each
kernel, one after another. The host code is compiled by the same compiler as any other library's.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from opwheel._build.device_code import DeviceCode, escape, join, write_if_changed
from opwheel._build.toolchain import ToolchainError, find_cxx, include_folders

from .extensions import CppLibrary

_FRONT_END = Path(__file__).with_name("sycl_front_end.cpp")
_RUNTIME = "dpcpp-cpp-rt"
HOST_FLAGS = ["-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING"]  # the host code is not compiled with -fsycl, and need not be
# PyTorch's own kernels are compiled so; icpx would take floating-point arithmetic for real numbers otherwise.
ICPX_FLAGS = ["-fsycl", "--offload-new-driver", "-fsyclbin=executable", "-std=c++17", "-O3", "-fp-model=precise"]


class SyclLibrary(CppLibrary):
    """A library with kernels in SYCL C++, compiled into images that it embeds (``opwheel/detail/device_image.h``).

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
        return device_code(self, build_dir)


@dataclass(frozen=True)
class Sycl:
    """A SYCL installation: headers and libraries, and icpx if it has one."""

    include: Path
    lib: Path
    icpx: Path | None = None


def find_sycl(libsycl: str) -> Sycl:
    """Locate icpx on PATH, or else the runtime's package in this environment.

    Args:
        libsycl: the file name of the runtime library that is wanted.

    Raises:
        ToolchainError: there is none, or it is another release.
    """
    icpx = shutil.which("icpx")
    if icpx is not None:
        root = Path(icpx).resolve().parents[1]
        sycl = Sycl(root / "include", root / "lib", Path(icpx))
    else:
        header = _file_of("intel-sycl-rt", "/sycl/sycl.hpp")
        sycl = Sycl(header.parents[1], _file_of("intel-sycl-rt", "/libsycl.so").parent)
    if not (sycl.lib / libsycl).is_file():
        found = ", ".join(sorted(path.name for path in sycl.lib.glob("libsycl.so.*[0-9]"))) or "none"
        raise ToolchainError(
            f"{libsycl} is needed, but {sycl.lib} has {found}. Install the release of oneAPI that your torch uses: pip "
            f"install '{_RUNTIME}>=2026.0,<2027' has libsycl.so.9, for torch >= 2.13."
        )
    return sycl


def device_code(library: SyclLibrary, build_dir: Path) -> DeviceCode:
    """Write the sources that ninja needs into ``build_dir`` and say what it has to do.

    Raises:
        ToolchainError: no SYCL compiler, or a source is missing.
    """
    sycl = find_sycl(library.libsycl)
    source = flatten(Path.cwd() / library.device_source, include_folders(library))
    write_if_changed(build_dir / "device_source.cpp", source)
    write_if_changed(build_dir / "device_images.cpp", _embedding(library))
    images = [f"{name}.image" for name in library.images]
    compiler, needed = _icpx_rules(sycl) if sycl.icpx else _front_end_rules(sycl)
    lines = list(compiler)
    for image, options in zip(images, library.images.values(), strict=True):
        lines.append(f"build {image}: device_image device_source.cpp {needed}")
        lines.append(f"  options = {join(options)}")
    lines.append(f"build device_images.o: cxx device_images.cpp | device_source.cpp {' '.join(images)}")
    return DeviceCode(
        lines,
        ["device_images.o"],
        [*HOST_FLAGS, f"-isystem{sycl.include}"],
        [f"-L{sycl.lib}", "-lsycl"],
    )


def flatten(source: Path, include: Sequence[Path]) -> str:
    """One self-contained file: every ``#include "..."`` replaced by that file, once.

    Args:
        source: the file.
        include: where included files are looked for, besides the folder of the one that includes them.

    Raises:
        ToolchainError: a file is missing.
    """
    seen: set[Path] = set()

    def text_of(path: Path) -> str:
        seen.add(path)
        return re.sub(
            r'^#include "(.+)"\n|^#pragma once\n', lambda line: included(path, line[1]), path.read_text(), flags=re.M
        )

    def included(by: Path, name: str | None) -> str:
        if name is None:
            return ""
        found = next((folder / name for folder in (by.parent, *include) if (folder / name).is_file()), None)
        if found is None:
            raise ToolchainError(
                f"{by} includes {name!r}, which is neither beside it nor in {', '.join(map(str, include))}."
            )
        return "" if found in seen else text_of(found)

    if not source.is_file():
        raise ToolchainError(f"there is no device source {source}.")
    return text_of(source)


def _file_of(distribution: str, path: str) -> Path:
    try:
        files = metadata.files(distribution) or ()
    except metadata.PackageNotFoundError:
        raise ToolchainError(
            f"no SYCL compiler: icpx is not on PATH, and {distribution} is not installed in this environment. Install "
            f"it with pip install '{_RUNTIME}>=2026.0,<2027', or activate oneAPI (source setvars.sh)."
        ) from None
    found = next((file for file in files if str(file).endswith(path)), None)
    if found is None:
        raise ToolchainError(f"{distribution} {metadata.version(distribution)} has no file ...{path}.")
    return Path(str(found.locate())).resolve()


def _front_end_rules(sycl: Sycl) -> tuple[list[str], str]:
    # The runtime wants a device even to compile; that of intel-opencl-rt is there on any machine. Its registration in
    # the system's list of OpenCL drivers is what a wheel cannot install.
    environment = {
        "ONEAPI_DEVICE_SELECTOR": "*:cpu",
        "OCL_ICD_FILENAMES": str(_file_of("intel-opencl-rt", "/libintelocl.so")),
    }
    cxx = [*find_cxx(), "-std=c++20", "-O1", *HOST_FLAGS, f"-isystem{sycl.include}", f"-L{sycl.lib}"]
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    return [
        "rule front_end",
        f"  command = {join(cxx)} $in -o $out -lsycl -Wl,-rpath,{shlex.quote(str(sycl.lib))}",
        "  description = compile the driver of the DPC++ front end",
        f"build front_end: front_end {escape(_FRONT_END)}",
        "rule device_image",
        f"  command = env {variables} ./front_end $in $out -fsycl-device-code-split=per_kernel $options",
        "  description = compile $out",
    ], "| front_end"


def _icpx_rules(sycl: Sycl) -> tuple[list[str], str]:
    # SPIR-V in any case, and code for the named GPUs besides.
    architectures = os.environ.get("TORCH_XPU_ARCH_LIST", "")
    targets = ["-fsycl-targets=spir64"]
    if architectures:
        targets = ["-fsycl-targets=spir64,spir64_gen", "-Xsycl-target-backend=spir64_gen", f"-device {architectures}"]
    return [
        "rule device_image",
        f"  command = {join([str(sycl.icpx), *ICPX_FLAGS, *targets])} $options $in -o $out",
        "  description = compile $out",
    ], ""


def _embedding(library: SyclLibrary) -> str:
    """C++ that defines what ``opwheel/detail/device_image.h`` declares."""
    files = {f"image_{index}": f"{name}.image" for index, name in enumerate(library.images)}
    files["source"] = "device_source.cpp"
    assembly = "".join(f'{label}:\\n.incbin \\"{file}\\"\\n{label}_end:\\n' for label, file in files.items())
    declared = ", ".join(f"{label}[], {label}_end[]" for label in files)
    entries = []
    options = []
    for index, (name, arguments) in enumerate(library.images.items()):
        listed = ", ".join(f'"{argument}"' for argument in arguments)
        options.append(f"constexpr std::array<const char*, {len(arguments)}> options_{index}{{{listed}}};")
        entries.append(f'    {{"{name}", {{image_{index}, image_{index}_end}}, options_{index}}},')
    return "\n".join(
        [
            "#include <array>",
            '#include "opwheel/detail/device_image.h"',
            f'asm(".section .rodata\\n.balign 16\\n{assembly}.previous\\n");'.replace("\\\\n", "\\n"),
            f'extern "C" {{ extern __attribute__((visibility("hidden"))) const char {declared}; }}',
            "namespace opwheel {",
            *options,
            "const DeviceImage images[] = {",
            *entries,
            "};",
            "std::span<const DeviceImage> device_images() { return images; }",
            "std::string_view device_source() { return {source, source_end}; }",
            f'std::string_view library_name() {{ return "{library.name.rpartition(".")[2]}.so"; }}',
            "}",
            "",
        ]
    )
