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

from . import declarations, ninja_file
from .extensions import CppLibrary
from .policy_file import compile_policy
from .toolchain import ToolchainError

if TYPE_CHECKING:
    from setuptools import Extension


class BuildLibraries(build_ext):
    """``build_ext`` for :class:`CppLibrary`; an operator library's schemas also become its ``__init__.pyi``.

    And its declarations become a part of the schema library, for programs without Python.
    """

    def get_ext_filename(self, fullname: str) -> str:
        # No CPython tag: the file does not depend on the interpreter.
        return str(Path(*fullname.split("."))) + ".so"

    def run(self) -> None:
        # As setuptools, which forgets it while it builds: for an editable installation and for build_ext --inplace, the
        # package's modules are in the source, and only there.
        self._is_in_source = bool(self.inplace or self.editable_mode)
        super().run()

    def build_extension(self, ext: Extension) -> None:
        if not isinstance(ext, CppLibrary):
            super().build_extension(ext)
            return
        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        build_dir = Path(self.build_temp).resolve() / ext.name
        try:
            if ext.name == "{0}.lib{0}_schema".format(ext.name.partition(".")[0]):
                self._build_schema_library(ext, output, build_dir)
            else:
                self._build_library(ext, output, build_dir)
        except ToolchainError as error:
            if not ext.optional:
                raise SystemExit(f"opwheel.build: {error}") from None
            self.warn(f"opwheel.build: {error} Going on without {ext.name}.")

    def _build_library(self, ext: CppLibrary, output: Path, build_dir: Path) -> None:
        jobs = int(self.parallel) if self.parallel else None
        ninja_file.build(ext, output, build_dir, jobs=jobs, verbose=bool(self.verbose), debug=bool(self.debug))

    def _build_schema_library(self, ext: CppLibrary, output: Path, build_dir: Path) -> None:
        """With the derivatives that the package declares, which can be imported when there is a library."""
        from . import derivatives  # a program, too, which must not be imported before it runs

        package = ext.name.partition(".")[0]
        source = derivatives.empty_source(package, build_dir)
        ext.sources.append(str(source))
        self._build_library(ext, output, build_dir)
        folder = output.parent
        if self._is_in_source:
            folder = Path(self.get_finalized_command("build_py").get_package_dir(package)).resolve()
            shutil.copy(output, folder)
        root = folder.parent
        declarations.run_with(package, root, "stubs")
        declarations.run_with(package, root, "derivatives", str(source))
        self._build_library(ext, output, build_dir)


class FreshBuildPy(build_py):
    """``build_py`` into an empty folder: setuptools would keep modules there that the source no longer has."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            for path in Path(self.build_lib).rglob("plugins.toml"):
                compile_policy(path)


class WheelForEveryPython(bdist_wheel):
    """Tags the wheel ``py3-none-<platform>``: compiled, but for every CPython."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


def commands() -> dict[str, type[Command]]:
    """What to pass as ``cmdclass`` to :func:`setuptools.setup`."""
    return {"build_py": FreshBuildPy, "build_ext": BuildLibraries, "bdist_wheel": WheelForEveryPython}
