"""The parser of command lines."""

from __future__ import annotations

import argparse
import sys
from typing import Any


class Parser(argparse.ArgumentParser):
    """As argparse's, but for help that cannot be written, which is an error, and abbreviations, which are none."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file or sys.stdout)
