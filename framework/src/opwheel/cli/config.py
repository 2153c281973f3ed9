"""``muladd config``: where the C++ SDK and the libraries are, for build systems and for packaging."""

from __future__ import annotations

from typing import Annotated

import typer

import muladd
from opwheel.registry import State


def config(
    includes: Annotated[bool, typer.Option("--includes", help="-I flags for muladd's and PyTorch's headers.")] = False,
    libs: Annotated[
        bool, typer.Option("--libs", help="The libraries that a program without Python ships, in load order.")
    ] = False,
    cflags: Annotated[
        bool, typer.Option("--cflags", help="All compiler flags of a backend, --includes among them.")
    ] = False,
) -> None:
    """Print compiler flags or library paths."""
    if not (includes or libs or cflags):
        raise typer.BadParameter("give at least one of --includes, --libs and --cflags")
    # Not at the top: the package needs setuptools, which the other commands do without.
    from opwheel.build import toolchain
    from opwheel.build.ninja_file import CXX_FLAGS

    include_flags = [f"-I{muladd.get_include()}", f"-isystem{toolchain.find_torch().include}"]
    if includes:
        print(" ".join(include_flags))
    if cflags:
        print(" ".join([*CXX_FLAGS, toolchain.target_version_macro("2.10"), *include_flags]))
    if libs:
        print(muladd.library.schema_library)
        for status in muladd.backends().values():
            if status.state is State.LOADED and status.library is not None:
                print(status.library)
