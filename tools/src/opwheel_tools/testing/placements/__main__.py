"""``python -m opwheel_tools.testing.placements LIBRARY FOLDER``: find the placement rules of a library and write them.

LIBRARY is the package, such as ``waves``; FOLDER has its sources, ``src/waves`` say. The rules
are what the references say, and the installed CPU backend as well: it may use what a reference computes anew.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from .keeping import write_rules

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m opwheel_tools.testing.placements", description=__doc__)
    parser.add_argument("library", help="the package")
    parser.add_argument("folder", type=Path, help="of its sources")
    given = parser.parse_args()
    print(write_rules(importlib.import_module(given.library).library, given.folder))
