"""The console script: decides what importing muladd may open, before it is imported."""

import os
import sys


def main() -> None:
    """Run the command line."""
    if "--deep" in sys.argv[1:]:
        # A backend whose library ends the process would end this one, too: doctor tries each in a process of its own.
        os.environ["MULADD_AUTOLOAD"] = "0"
    from muladd.cli import main as run

    run()
