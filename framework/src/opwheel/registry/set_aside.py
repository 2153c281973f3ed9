"""What a command sets aside before its library is imported: that the lock holds, that backends are opened.

``waves doctor`` tells how an installation differs from the lock file, so its import of the library must not fail
because of it; ``waves doctor --deep`` opens each backend in a process of its own, so its import must not open them.
And what is printed during the import is not what the command prints: standard output is set aside, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType

from .. import standard_output

set_aside: dict[str, str] = {}  # environment variables that were taken away, with their values


def lock(prefix: str) -> None:
    """Let the next import go on although the installation is not what is locked."""
    name = f"{prefix}_LOCK"
    if name in os.environ:
        set_aside[name] = os.environ.pop(name)


def backends(prefix: str) -> None:
    """Let the next import open no backend."""
    os.environ[f"{prefix}_AUTOLOAD"] = "0"


def for_module_command(package: str) -> None:
    """Do so for ``python -m <package> COMMAND``, which imports the package before its commands run."""
    is_command = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == package
    if is_command:
        _for_arguments(package, sys.argv[1:])


def _for_arguments(package: str, arguments: Sequence[str]) -> None:
    prefix = package.upper()
    if arguments[:1] in (["doctor"], ["lock"]):
        lock(prefix)
    if arguments[:1] in (["doctor"], ["lock"], ["config"], ["explain"], ["--version"]):
        standard_output.divert()  # until the command begins
    if "--deep" in arguments:
        backends(prefix)
    if os.environ.get(f"{prefix}_TRACE") == "1":
        return

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        # What the registry raises is a sentence that says what to do; a traceback would say nothing more.
        if kind.__module__ == "opwheel.registry.errors":
            print(f"{package}: {error}", file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, traceback)

    sys.excepthook = show
