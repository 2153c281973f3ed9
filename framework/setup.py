"""Builds the native libraries, four for each minor release of torch; without them what is in Python remains.

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

from opwheel._build import NativeLibrary, commands
from opwheel._torch.release import native_library

SOURCES = Path("src/opwheel/csrc")


def libraries() -> list[NativeLibrary]:
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


def libraries_for(version: str, folder: Path | None = None) -> list[NativeLibrary]:
    """The libraries for one minor release; what was asked for by name has to be built."""
    autograd = library("autograd", "library.cpp", version, folder)
    autograd.sources.append(str(SOURCES / "autograd/dispatcher.cpp"))  # a program without Python ships both
    autograd.exports += ("opwheel_dispatcher_*",)
    calls = library("calls", "calls.cpp", version, folder)
    calls.include_dirs = [sysconfig.get_path("include")]
    calls.extra_link_args = ["-ltorch_python", "-Wl,-z,undefs"]  # the interpreter has Python's functions
    memory = library("memory", "caching_allocator.cpp", version, folder)
    memory.exports = ("opwheel_cache_*",)
    foreign = library("foreign", "foreign.cpp", version, folder)
    return [autograd, calls, memory, foreign]


def library(name: str, source: str, version: str, folder: Path | None) -> NativeLibrary:
    """A library that uses PyTorch's C++ interface."""
    built = NativeLibrary(
        f"opwheel.native.{native_library(name, version).removesuffix('.so')}",
        [str(SOURCES / name / source)],
        torch_folder=folder,
        exports=[f"opwheel_{name}_*"],
        # As PyTorch itself: its headers trace every call otherwise. -O2: a program's other code displaces this from the
        # caches between two calls, and the shorter it is, the sooner it is back.
        compile_args=["-DNDEBUG", "-O2"],
    )
    built.optional = folder is None
    return built


# Each library is one long compilation, so they are built side by side.
setup(ext_modules=libraries(), cmdclass=commands(), options={"build_ext": {"parallel": os.cpu_count()}})
