"""The command line before muladd is imported: what that import may open, and how its failure is shown."""

from __future__ import annotations

import os
import sys
from types import TracebackType

lock_file: str | None = None  # what MULADD_LOCK named, where the command only compares with it


def main() -> None:
    """Run the command line; the console script."""
    prepare()
    from opwheel.cli import main as run

    run()


def prepare() -> None:
    """Let the import go as far as the command needs. ``import muladd`` calls it for ``python -m muladd``."""
    global lock_file
    arguments = sys.argv[1:]
    if "--deep" in arguments:
        # A backend whose library ends the process would end this one, too: doctor tries each in a process of its own.
        os.environ["MULADD_AUTOLOAD"] = "0"
    if arguments[:1] in (["doctor"], ["lock"]):
        # The installation need not be what is locked: doctor tells, and with lock it may become what is.
        lock_file = os.environ.pop("MULADD_LOCK", None)
    if os.environ.get("MULADD_TRACE") != "1":
        sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print what the registry raises as the sentence it is; it says what to do, and the traceback says nothing."""
    if kind.__module__ == "opwheel.registry.errors":
        print(f"muladd: {error}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)
