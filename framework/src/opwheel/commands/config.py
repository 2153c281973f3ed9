"""Print compiler flags or paths of libraries, for build systems and for packaging."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import tools
from .target import Target, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to print; several are printed one after the other."""
    add = parser.add_argument
    add("--includes", action="store_true", help="-I flags for the library's, opwheel's and PyTorch's headers")
    add("--cflags", action="store_true", help="all compiler flags of a backend, --includes among them")
    add("--ldflags", action="store_true", help="linker flags of a backend: PyTorch's libraries")
    add("--libs", action="store_true", help="the libraries that a program without Python ships, in load order")
    add(
        "--autograd",
        action="store_true",
        help="opwheel's native Autograd library, which a program that trains also ships",
    )
    add("--memory", action="store_true", help="opwheel's native library that keeps the memory of large results")


def run(given: argparse.Namespace, target: Target) -> int:
    """Print it."""
    from ..registry import State  # a command line that fails early does not wait for it

    if not any(vars(given).values()):
        raise UsageError("give at least one of --includes, --cflags, --ldflags, --libs, --autograd and --memory")
    library = target.open()
    for option in ("includes", "cflags", "ldflags"):
        if getattr(given, option):
            flags = tools.load("compiler-flags", f"config --{option}")
            print(*flags(library, option))
    if given.libs:
        loaded = [status.library for status in library.backends().values() if status.state is State.LOADED]
        backends = [path for path in loaded if path is not None]
        print(library.schema_library, *backends, sep="\n")
        if not given.autograd:
            _print_library_for_calls(backends)
    if given.autograd:
        print(_native_library("autograd", "have no gradients then"))
    if given.memory:
        print(_native_library("memory", "take new memory for each large result then"))
    return 0


def _print_library_for_calls(backends: list[Path]) -> None:
    """The native library, if kernels call other operators: it tells them the schemas (``opwheel/call.h``)."""
    from .._torch.native import library_file
    from ..registry.abi import read_notes

    found = library_file("autograd")
    if isinstance(found, Path) and any(read_notes(path).callees for path in backends):
        print(found)


def _native_library(name: str, without: str) -> Path:
    from .._torch.native import library_file

    found = library_file(name)
    if isinstance(found, str):
        raise UsageError(f"{found}; programs without Python {without}")
    return found
