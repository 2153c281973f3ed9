"""Judges public fixes and the commits before them: the parent has to fail for the right reason, the fix has to pass.

    python -m tests.time_machine CHECKOUTS [--only NAME]

CHECKOUTS is a folder with clones, ``CHECKOUTS/Liger-Kernel`` for ``linkedin/Liger-Kernel``. They stay as they are: both
source trees of an entry are written to a temporary folder. Exit code 1 where a row of the table is not right.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .entry import entries
from .run import outcome

HEADER = "| fix | what was wrong | the parent | the fix | seconds |\n|---|---|---|---|---|"


def main(*arguments: str) -> int:
    """Run it; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.time_machine")
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", metavar="NAME", help="entries whose name has this part")
    options = parser.parse_args(arguments)
    print(HEADER)
    are_right = []
    for file, entry in entries().items():
        if (options.only or "") in file.stem:
            found = outcome(file, entry, options.checkouts)
            are_right.append(found.is_right)
            print(found.row, flush=True)
    print(f"{sum(are_right)} of {len(are_right)} fixes are judged right")
    return 0 if are_right and all(are_right) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
