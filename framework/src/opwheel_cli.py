"""The console script: decides what importing muladd may open, before it is imported."""

import os
import sys


def main() -> None:
    """Run the command line."""
    arguments = sys.argv[1:]
    if "--deep" in arguments:
        # A backend whose library ends the process would end this one, too: doctor tries each in a process of its own.
        os.environ["MULADD_AUTOLOAD"] = "0"
    if "--deep" in arguments or arguments[:1] == ["lock"]:
        # The installation need not be what is locked: with `lock` it may become what is.
        os.environ.pop("MULADD_LOCK", None)
    from opwheel.cli import main as run

    run()
