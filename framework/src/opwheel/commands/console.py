"""Prints for people: what plugins, files and variables say is text, whatever control characters it has in it."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from ..text import printable

GREEN, YELLOW, RED = 32, 33, 31  # of a terminal (ECMA-48)


def say(text: str) -> None:
    """Print text of whatever origin; on a terminal wrapped at words, elsewhere a line stays a line."""
    for line in printable(text).split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        columns = shutil.get_terminal_size().columns
        fits = not _is_terminal() or len(line) <= columns
        print(line if fits else textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False))


def print_table(rows: Sequence[Sequence[str]], colors: Sequence[int | None], column: int) -> None:
    """Print cells of whatever origin, below each other.

    Args:
        rows: of as many cells each.
        colors: for each row, that of one of its cells on a terminal.
        column: which cell that is.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*shown, strict=True)]
    for row, color in zip(shown, colors, strict=True):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        if color is not None and _is_terminal():
            cells[column] = f"\x1b[{color}m{cells[column]}\x1b[0m"
        print("  ".join(cells).rstrip())


def _is_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
