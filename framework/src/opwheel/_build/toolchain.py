"""Finds the compiler and headers, and says in one line what is missing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shlex
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .extensions import NativeLibrary


# What a build for another processor sets: the platform that Python names wheels after, the compiler and its flags, and
# the PyTorch to build with.
_OF_TARGET = ("_PYTHON_HOST_PLATFORM", "CXX", "CXXFLAGS", "LDFLAGS", "OPWHEEL_TORCH")


class ToolchainError(RuntimeError):
    """A tool or header that the build needs is not there."""

    code = "OPWHEEL-E080"


@dataclass(frozen=True)
class Torch:
    """Where the installed PyTorch keeps its headers and libraries."""

    include: Path
    lib: Path


def require_linux() -> None:
    """Check that libraries can be built on this system.

    Raises:
        ToolchainError: it is not Linux.
    """
    system = platform.system()
    if system != "Linux":
        raise ToolchainError(
            f"libraries are built on Linux only, and this is {system}. Build in a Linux container or virtual machine; "
            "on Windows, in WSL 2."
        )


def machine() -> str:
    """The processor that is built for, as in the tags of wheels: ``x86_64``, ``aarch64``."""
    return sysconfig.get_platform().rpartition("-")[2]


def is_cross() -> bool:
    """Whether what is built is for another processor than this one, and cannot be run here."""
    return machine() != platform.machine()


@contextlib.contextmanager
def for_this_machine() -> Iterator[None]:
    """Within it a build is for this machine, whatever the variables of a build for another processor say."""
    kept = {name: os.environ.pop(name) for name in _OF_TARGET if name in os.environ} if is_cross() else {}
    try:
        yield
    finally:
        os.environ.update(kept)


def find_torch(folder: Path | None = None) -> Torch:
    """Locate torch without importing it: the one in a folder, in ``$OPWHEEL_TORCH``, or the installed one."""
    named = os.environ.get("OPWHEEL_TORCH")
    if folder is not None or named:
        return _torch_in((folder or Path(str(named))).resolve() / "torch")
    if is_cross():
        raise ToolchainError(
            f"this is a build for {machine()} on {platform.machine()}, and the installed torch is not for that. Set "
            f"OPWHEEL_TORCH to a folder with the package torch of a wheel for {machine()}, and CXX to its compiler."
        )
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ToolchainError(
            "torch is not installed in this environment. Install it first (for instance torch==2.13.0), then build "
            "with --no-build-isolation: an isolated build would download another torch, with its CUDA packages."
        )
    return _torch_in(Path(spec.origin).parent)


def _torch_in(root: Path) -> Torch:
    if not (root / "include/torch/csrc/stable/library.h").is_file():
        raise ToolchainError(f"the torch in {root} has no stable ABI headers; torch >= 2.10 is needed.")
    return Torch(root / "include", root / "lib")


def include_folders(library: NativeLibrary) -> list[Path]:
    """Where a library's sources find headers besides PyTorch's: its own folders, then those of installed packages."""
    return [*(Path.cwd() / folder for folder in library.include_dirs), *library.headers()]


def find_cxx() -> list[str]:
    """The C++ compiler of ``$CXX``, or g++, c++ or clang++."""
    named = os.environ.get("CXX")
    if named:
        command = shlex.split(named)
        if shutil.which(command[0]) is None:
            raise ToolchainError(f"CXX is {named!r}, but there is no such command.")
        return command
    for candidate in ("g++", "c++", "clang++"):
        if shutil.which(candidate):
            return [candidate]
    raise ToolchainError("no C++ compiler found. Install g++ >= 11 (Debian: apt-get install g++) or set CXX.")


def stable_abi_macros(release: str | None) -> list[str]:
    """What keeps a source to the stable ABI of a release such as ``"2.10"``: any other header is a compile error.

    ``TORCH_TARGET_VERSION`` has a byte each for major and minor at the top of 64 bits.
    """
    if release is None:
        return []
    major, minor = (int(part) for part in release.split("."))
    return ["-DTORCH_STABLE_ONLY", f"-DTORCH_TARGET_VERSION=0x{major:02x}{minor:02x}000000000000"]


def prefix_maps(root: Path, torch: Torch, library: NativeLibrary) -> list[str]:
    """Flags for the same bytes from any checkout and any environment: headers name their files in error messages."""
    places = {root: ".", torch.include: "torch/include", **library.headers()}
    return [f"-ffile-prefix-map={place}={name}" for place, name in places.items()]
