"""``config``: where headers and libraries are, for build systems and for packaging."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..registry import State
from ..registry.abi import read_notes

if TYPE_CHECKING:
    from .. import Library


def config(
    context: typer.Context,
    includes: Annotated[
        bool, typer.Option("--includes", help="-I flags for the library's, opwheel's and PyTorch's headers.")
    ] = False,
    libs: Annotated[
        bool, typer.Option("--libs", help="The libraries that a program without Python ships, in load order.")
    ] = False,
    autograd: Annotated[
        bool,
        typer.Option("--autograd", help="opwheel's native Autograd library, which a program that trains also ships."),
    ] = False,
    cflags: Annotated[
        bool, typer.Option("--cflags", help="All compiler flags of a backend, --includes among them.")
    ] = False,
) -> None:
    """Print compiler flags or paths of libraries."""
    if not (includes or libs or autograd or cflags):
        raise typer.BadParameter("give at least one of --includes, --libs, --autograd and --cflags")
    # Not at the top: the package needs setuptools, which the other commands do without.
    from ..build import toolchain
    from ..build.ninja_file import CXX_FLAGS

    library: Library = context.obj.open()
    folders = [f"-I{library.get_include()}", f"-I{toolchain.SDK_INCLUDE}"]
    include_flags = [*folders, f"-isystem{toolchain.find_torch().include}"]
    if includes:
        print(" ".join(include_flags))
    if cflags:
        print(" ".join([*CXX_FLAGS, *toolchain.stable_abi_macros("2.10"), *include_flags]))
    if libs:
        loaded = [status.library for status in library.backends().values() if status.state is State.LOADED]
        backends = [path for path in loaded if path is not None]
        print(library.schema_library, *backends, sep="\n")
        if not autograd:
            _print_library_for_calls(backends)
    if autograd:
        print(_autograd_library())


def _print_library_for_calls(backends: list[Path]) -> None:
    """The native library, if kernels call other operators: it tells them the schemas (``opwheel/call.h``)."""
    from .._native import library_file

    found = library_file()
    if isinstance(found, Path) and any(read_notes(path).callees for path in backends):
        print(found)


def _autograd_library() -> Path:
    from .._native import library_file

    found = library_file()
    if isinstance(found, str):
        raise typer.BadParameter(f"{found}; programs without Python have no gradients then")
    return found
