"""Libraries with CUDA kernels: finds the compiler, here or among the installed packages, and says how to call it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opwheel._build.device_code import DeviceCode, join, write_if_changed
from opwheel._build.toolchain import (
    ToolchainError,
    find_cxx,
    find_torch,
    include_folders,
    is_cross,
    prefix_maps,
    stable_abi_macros,
)

from .extensions import CppLibrary

# What the host compiler gets from CXX_FLAGS, in nvcc's words. Extended lambdas and relaxed constexpr stay off: the
# device code is plain C++. Machine code is compressed: it takes a seventh of the space, less than in an archive.
NVCC_FLAGS = ["-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall", "--threads=2"]
NVCC_FLAGS += ["-Xfatbin=-compress-all"]

# A PyTorch without CUDA has no libtorch_cuda.so to link with, and the wheel must not depend on which one was there. So
# it is linked with an empty library of that name; the loader then uses the real one, and says so when there is none.
STUB_SOURCE = "void aoti_torch_get_current_cuda_stream() {}\n"
STUB_NAME = "libtorch_cuda.so"


class CudaLibrary(CppLibrary):
    """A shared library of which some sources are CUDA (``.cu``). Built without a GPU; the CUDA runtime is linked in.

    Beside the library comes a JSON file of the same name that says what it was built for: ``cuda`` (the release),
    ``architectures`` and ``ptx`` (compute capabilities).

    Args:
        name: as for :class:`CppLibrary`.
        sources: ``.cpp`` files go to the C++ compiler, ``.cu`` files to nvcc.
        cuda: the CUDA release to build with; any of its major release will do. ``OPWHEEL_CUDA`` (``"12"``) names
            another: what nvcc 12 builds runs with PyTorchs and drivers of CUDA 12 and 13.
        architectures: compute capabilities to make machine code for: ``"9.0"``. In the place of those after the newest
            that nvcc knows, there is PTX for that one.
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
        return device_code(self, build_dir)


@dataclass(frozen=True)
class Toolkit:
    """One installation of nvcc with the runtime it links."""

    nvcc: Path
    release: str
    lib: Path
    include: Path
    newest: str
    """The latest compute capability that it makes machine code for."""

    @property
    def major(self) -> int:
        """Of the release."""
        return int(self.release.partition(".")[0])


def device_code(library: CudaLibrary, build_dir: Path) -> DeviceCode:
    """Write the source that ninja needs into ``build_dir`` and say what it has to do.

    Raises:
        ToolchainError: no CUDA compiler of the wanted release, or TORCH_CUDA_ARCH_LIST is malformed or has a compute
            capability that it does not know.
    """
    toolkit = find_toolkit(os.environ.get("OPWHEEL_CUDA") or library.cuda)
    binary, ptx = architectures(library, toolkit.newest)
    write_if_changed(build_dir / "stub.c", STUB_SOURCE)
    cxx = find_cxx()
    compiler = next(word for word in reversed(cxx) if not word.startswith("-"))  # not a launcher such as ccache
    torch = find_torch()
    flags = [
        *NVCC_FLAGS,
        f"-Xcompiler={','.join(prefix_maps(Path.cwd(), torch, library))}",
        *code_flags(binary, ptx),
        f"-ccbin={compiler}",
        *stable_abi_macros(library.torch_target),
        *(f"-I{folder}" for folder in include_folders(library)),
        f"-isystem={torch.include}",
        # For another processor nvcc looks in a folder of that name, which few toolkits have; the headers are the same.
        *([f"-I{toolkit.include}", f"-isystem={toolkit.include}/cccl"] if is_cross() else []),
    ]
    lines = [
        "rule nvcc",
        f"  command = {join([str(toolkit.nvcc)])} -MMD -MF $out.d {join(flags)} $arguments -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule stub",
        f"  command = {join(cxx)} -x c -shared -fPIC -Wl,-soname,$out $in -o $out",
        "  description = make $out",
        f"build {STUB_NAME}: stub stub.c",
    ]
    return DeviceCode(
        lines,
        [STUB_NAME],
        link_flags=[f"-L{toolkit.lib}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"],
        # nvcc 12 has no such option, and nothing random in what is left of an object after it is stripped.
        seed_flag="-frandom-seed" if toolkit.major >= 13 else "-Xcompiler=-frandom-seed",
        description=json.dumps({"cuda": toolkit.release, "architectures": binary, "ptx": ptx}) + "\n",
    )


def find_toolkit(wanted: str) -> Toolkit:
    """The first nvcc of the wanted major release: ``$CUDA_HOME``, then PATH, then the packages of PyPI.

    Raises:
        ToolchainError: naming what was looked at and what to install.
    """
    seen = []
    for nvcc, origin in _candidates():
        release, root = _ask(nvcc)
        if release is None:
            seen.append(f"{nvcc} ({origin}) does not run")
            continue
        lib = next((lib for lib in _library_folders(root) if (lib / "libcudart_static.a").is_file()), None)
        if release.partition(".")[0] != wanted.partition(".")[0]:
            seen.append(f"{nvcc} ({origin}) is release {release}")
        elif lib is None:
            seen.append(f"{nvcc} ({origin}) comes without libcudart_static.a")
        else:
            return Toolkit(nvcc, release, lib, root / "include", _newest(nvcc))
    raise ToolchainError(
        f"CUDA {wanted} is needed to build this, and there is none: {'; '.join(seen) or 'no nvcc found'}. "
        f"{_where_from(wanted)}"
    )


def _where_from(wanted: str) -> str:
    if int(wanted.partition(".")[0]) < 13:
        return "PyPI has no nvcc of that release: set CUDA_HOME to a CUDA toolkit."
    return (
        f"Install the compiler from PyPI (no GPU and no driver needed): pip install {' '.join(packages(wanted))}; "
        "or set CUDA_HOME."
    )


def packages(release: str) -> list[str]:
    """The packages of PyPI that together are nvcc."""
    parts = ("nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-nvvm")
    return [f"'{part}=={release}.*'" for part in parts]


def _candidates() -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable], "bin/nvcc"), variable
    on_path = shutil.which("nvcc")
    if on_path:
        yield Path(on_path), "PATH"
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for nvcc in sorted(Path(folder).glob("cu*/bin/nvcc")):
            yield nvcc, "PyPI"


def _ask(nvcc: Path) -> tuple[str | None, Path]:
    """Release and root of the toolkit; nvcc on PATH may be a script that calls another."""
    command = [str(nvcc), "--dryrun", "-x", "cu", "-c", os.devnull]
    try:
        version = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True, check=True).stdout
        steps = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    except (OSError, subprocess.CalledProcessError):
        return None, nvcc
    release = re.search(r"release (\d+\.\d+)", version)
    root = re.search(r"^#\$ TOP=(.*)$", steps, re.MULTILINE)
    return release and release[1], Path(root[1] if root else nvcc.parent.parent)


def _newest(nvcc: Path) -> str:
    """The latest compute capability that an nvcc makes machine code for."""
    listed = subprocess.run([str(nvcc), "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
    major, minor = max((int(code[:-1]), int(code[-1])) for code in re.findall(r"^sm_(\d+)$", listed, re.MULTILINE))
    return f"{major}.{minor}"


def _library_folders(root: Path) -> list[Path]:
    return [root / "lib64", root / "lib", *sorted(root.glob("targets/*-linux/lib"))]


def architectures(library: CudaLibrary, newest: str) -> tuple[list[str], list[str]]:
    """The compute capabilities to compile for: those with machine code, those with PTX.

    ``TORCH_CUDA_ARCH_LIST`` ("8.0;9.0+PTX") wins over the library's own.

    Args:
        library: that is built.
        newest: the latest that nvcc knows. PTX for it takes the place of the library's later ones: drivers compile it.

    Raises:
        ToolchainError: the variable is malformed, or has later ones.
    """
    given = os.environ.get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ").split()
    if not given:
        known = [item for item in library.architectures if _version(item) <= _version(newest)]
        ptx = [item for item in library.ptx if _version(item) <= _version(newest)]
        is_all = len(known) == len(library.architectures)
        return known, ptx if is_all or newest in ptx else [*ptx, newest]
    for item in given:
        if not re.fullmatch(r"\d+\.\d[a-z]?(\+PTX)?", item):
            raise ToolchainError(
                f"TORCH_CUDA_ARCH_LIST has {item!r}; write compute capabilities such as '8.0;9.0+PTX', or unset it to "
                f"build for {', '.join(library.architectures)}."
            )
        if _version(item) > _version(newest):
            raise ToolchainError(
                f"TORCH_CUDA_ARCH_LIST has {item!r}, and this nvcc knows none after {newest}. Take a newer one, or "
                f"'{newest}+PTX', which drivers compile for newer devices."
            )
    binary = [item.removesuffix("+PTX") for item in given]
    return binary, [item.removesuffix("+PTX") for item in given if item.endswith("+PTX")]


def _version(capability: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", capability)
    return int(major), int(minor)


def code_flags(binary: list[str], ptx: list[str]) -> list[str]:
    """The options of nvcc for these compute capabilities."""
    digits = [(item.replace(".", ""), kind) for kind, items in (("sm", binary), ("compute", ptx)) for item in items]
    return [f"-gencode=arch=compute_{number},code={kind}_{number}" for number, kind in digits]
