"""The command line of modules that make an environment in a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Made(Protocol):
    """An environment; ``python`` is its interpreter."""

    python: Path

    def make(self) -> None:
        """Do what has not been done yet."""


def run(name: str, environment: Callable[[Path], Made]) -> int:
    """Make the environment in the folder that the command line names; the exit status.

    Args:
        name: of the module.
        environment: the environment of a folder.
    """
    if len(sys.argv) != 2:
        print(f"{name}: name the folder of the environment", file=sys.stderr)
        return 2
    made = environment(Path(sys.argv[1]))
    made.make()
    print(made.python)
    return 0
