"""The setuptools commands: build_ext that calls ninja, bdist_wheel that knows the tag."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import setuptools
from setuptools import Command

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ModuleNotFoundError as error:  # without build isolation, pip takes the one that is there
    text = f"setuptools {setuptools.__version__} is too old to build this: pip install --upgrade 'setuptools>=80'"
    raise ImportError(text) from error
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

from . import ninja_file
from .extensions import NativeLibrary
from .toolchain import ToolchainError

if TYPE_CHECKING:
    from setuptools import Extension


class BuildLibraries(build_ext):
    """``build_ext`` for :class:`NativeLibrary`."""

    def get_ext_filename(self, fullname: str) -> str:
        # No CPython tag: the file does not depend on the interpreter.
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        if not isinstance(ext, NativeLibrary):
            super().build_extension(ext)
            return
        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.build_library(ext, output, self._folder_of_objects() / ext.name)
        except ToolchainError as error:
            if not ext.optional:
                raise SystemExit(f"{ext.name}: {error}") from None
            self.warn(f"{error} Going on without {ext.name}.")

    def _folder_of_objects(self) -> Path:
        """Where they stay for the next build: setuptools has a temporary folder for editable installations."""
        base = Path(self.get_finalized_command("build").build_base)
        return (base / "editable" if self.editable_mode else Path(self.build_temp)).resolve()

    def build_library(self, library: NativeLibrary, output: Path, build_dir: Path) -> None:
        """Compile it into ``output``; objects stay in ``build_dir``.

        Raises:
            ToolchainError: it cannot be built.
        """
        jobs = int(self.parallel) if self.parallel else None
        ninja_file.build(library, output, build_dir, jobs=jobs, verbose=bool(self.verbose), debug=bool(self.debug))


class FreshBuildPy(build_py):
    """``build_py`` into an empty folder: setuptools would keep modules there that the source no longer has."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class WheelForEveryPython(bdist_wheel):
    """Tags the wheel ``py3-none-<platform>``: compiled, but for every CPython."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


def commands() -> dict[str, type[Command]]:
    """What to pass as ``cmdclass`` to :func:`setuptools.setup`."""
    return {"build_py": FreshBuildPy, "build_ext": BuildLibraries, "bdist_wheel": WheelForEveryPython}
