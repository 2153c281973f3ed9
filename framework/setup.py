"""Builds the native libraries, two for each minor release of torch; without them what is in Python remains.

OPWHEEL_TORCHES names folders that have a package torch each (release/torches.py makes such). If it is not set, the
libraries are for the torch that is installed.
"""

import importlib.metadata
import os
import sys
import sysconfig
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent / "src"))

from opwheel._torch_release import native_library
from opwheel.build import CppLibrary, commands


def libraries() -> list[CppLibrary]:
    """What can be built here: none in an isolated build, which has no torch, nor for a torch of another vendor."""
    folders = os.environ.get("OPWHEEL_TORCHES", "").split(os.pathsep)
    if folders != [""]:
        return [one for folder in folders for one in libraries_for(version_in([folder]), Path(folder))]
    try:
        return libraries_for(version_in(sys.path))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return []


def version_in(folders: list[str]) -> str:
    """The version of the torch there."""
    for found in importlib.metadata.distributions(name="torch", path=folders):
        return found.version
    raise importlib.metadata.PackageNotFoundError(f"torch in {folders}")


def libraries_for(version: str, folder: Path | None = None) -> list[CppLibrary]:
    """The libraries for one minor release; what was asked for by name has to be built."""
    autograd = library(
        "autograd",
        version,
        folder,
        ["csrc/autograd/library.cpp", "csrc/guarded_memory.cpp", "csrc/caching_allocator.cpp", "csrc/dispatcher.cpp"],
    )
    autograd.exports = ("opwheel_autograd_*", "opwheel_guards_*", "opwheel_cache_*", "opwheel_dispatcher_*")
    calls = library("calls", version, folder, ["csrc/calls.cpp"])
    calls.exports = ("opwheel_calls_*",)
    calls.include_dirs = [sysconfig.get_path("include")]
    calls.extra_link_args = ["-ltorch_python", "-Wl,-z,undefs"]  # the interpreter has Python's functions
    return [autograd, calls]


def library(name: str, version: str, folder: Path | None, sources: list[str]) -> CppLibrary:
    """A library that uses PyTorch's C++ interface."""
    built = CppLibrary(
        f"opwheel.native.{native_library(name, version).removesuffix('.so')}",
        sources,
        torch_target=None,
        torch_folder=folder,
        # As PyTorch itself: its headers trace every call otherwise. -O2: a program's other code displaces this from the
        # caches between two calls, and the shorter it is, the sooner it is back.
        compile_args=["-DNDEBUG", "-O2"],
    )
    built.optional = folder is None
    return built


# Each library is one long compilation, so they are built side by side.
setup(ext_modules=libraries(), cmdclass=commands(), options={"build_ext": {"parallel": os.cpu_count()}})
