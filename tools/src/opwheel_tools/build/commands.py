"""The setuptools commands of operator libraries and backends: opwheel's own, and what a library's declarations add."""

from __future__ import annotations

import shutil
from pathlib import Path

from opwheel._build import NativeLibrary
from opwheel._build import commands as framework_commands
from opwheel._build.commands import BuildLibraries, FreshBuildPy
from opwheel._build.toolchain import for_this_machine, is_cross
from setuptools import Command

from . import declarations
from .policy_file import compile_policy


class BuildLibrariesAndDeclarations(BuildLibraries):
    """An operator library's schemas also become its ``__init__.pyi``.

    And its declarations become a part of the schema library, for programs without Python.
    """

    def run(self) -> None:
        # As setuptools, which forgets it while it builds: for an editable installation and for build_ext --inplace, the
        # package's modules are in the source, and only there.
        self._is_in_source = bool(self.inplace or self.editable_mode)
        super().run()

    def build_library(self, library: NativeLibrary, output: Path, build_dir: Path) -> None:
        """Compile it, with what the package declares if it has the schemas."""
        if library.name == "{0}.lib{0}_schema".format(library.name.partition(".")[0]):
            self._build_schema_library(library, output, build_dir)
        else:
            super().build_library(library, output, build_dir)

    def _build_schema_library(self, library: NativeLibrary, output: Path, build_dir: Path) -> None:
        """With the derivatives that the package declares, which can be imported when there is a library."""
        from . import derivatives  # a program, too, which must not be imported before it runs

        package = library.name.partition(".")[0]
        # What is for another processor cannot be imported here: the library that is asked is for this one.
        first_dir = build_dir / "asked" if is_cross() else build_dir
        source = derivatives.empty_source(package, first_dir)
        sources = library.sources
        library.sources = [*sources, str(source)]
        if is_cross():
            output.unlink(missing_ok=True)  # ninja goes by times, and takes the one for the other
        folder = output.parent
        with for_this_machine():
            super().build_library(library, output, first_dir)
            if self._is_in_source:
                folder = Path(self.get_finalized_command("build_py").get_package_dir(package)).resolve()
                shutil.copy(output, folder)
            declarations.run_with(package, folder.parent, "stubs")
            declarations.run_with(package, folder.parent, "derivatives", str(source))
        if is_cross():
            output.unlink()
            library.sources = [*sources, shutil.copy(source, build_dir)]
        super().build_library(library, output, build_dir)


class FreshBuildPyWithPolicy(FreshBuildPy):
    """And ``plugins.toml`` in the form that is read at import."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for path in Path(self.build_lib).rglob("plugins.toml"):
                compile_policy(path)


def commands() -> dict[str, type[Command]]:
    """What to pass as ``cmdclass`` to :func:`setuptools.setup`."""
    return {
        **framework_commands(),
        "build_py": FreshBuildPyWithPolicy,
        "build_ext": BuildLibrariesAndDeclarations,
    }
