"""Builds the native Autograd library for the torch that is installed; without one the kernels in Python remain."""

import importlib.metadata
import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent / "src"))

from opwheel.build import CppLibrary, commands


def native_autograd() -> list[CppLibrary]:
    """The library for exactly the installed minor release; none without torch, as in an isolated build."""
    try:
        release = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return []
    major, minor = release.split(".")[:2]
    library = CppLibrary(
        f"opwheel.native.libopwheel_autograd_{major}_{minor}",
        ["csrc/autograd/library.cpp"],
        torch_target=None,
        exports=["opwheel_autograd_*"],
    )
    library.optional = True
    return [library]


setup(ext_modules=native_autograd(), cmdclass=commands())
