"""Builds native Autograd libraries, one for each minor release of torch; without one the kernels in Python remain.

OPWHEEL_TORCHES names folders that have a package torch each (release/torches.py makes such). If it is not set, the
library is for the torch that is installed.
"""

import importlib.metadata
import os
import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent / "src"))

from opwheel._torch_release import native_library
from opwheel.build import CppLibrary, commands


def libraries() -> list[CppLibrary]:
    """What can be built here: none in an isolated build, which has no torch, nor for a torch of another vendor."""
    folders = os.environ.get("OPWHEEL_TORCHES", "").split(os.pathsep)
    if folders != [""]:
        return [library(version_in([folder]), Path(folder)) for folder in folders]
    try:
        return [library(version_in(sys.path))]
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return []


def version_in(folders: list[str]) -> str:
    """The version of the torch there."""
    for found in importlib.metadata.distributions(name="torch", path=folders):
        return found.version
    raise importlib.metadata.PackageNotFoundError(f"torch in {folders}")


def library(version: str, folder: Path | None = None) -> CppLibrary:
    """The library for one minor release; what was asked for by name has to be built."""
    name = native_library(version).removesuffix(".so")
    sources = ["csrc/autograd/library.cpp", "csrc/guarded_memory.cpp"]
    exports = ["opwheel_autograd_*", "opwheel_guards_*"]
    built = CppLibrary(
        f"opwheel.native.{name}",
        sources,
        torch_target=None,
        torch_folder=folder,
        exports=exports,
        compile_args=["-DNDEBUG"],  # as PyTorch itself: its headers trace every call otherwise
    )
    built.optional = folder is None
    return built


setup(ext_modules=libraries(), cmdclass=commands())
