"""Where commands print for people: what plugins, files and variables say is text, whatever it has in it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from ..printable import printable


class TextConsole(Console):
    """A console without markup: brackets, colons and control characters are shown and have no effect."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def say(self, text: str) -> None:
        """Print text of whatever origin."""
        self.print(printable(text))


def cell(text: str, style: str = "") -> Text:
    """Text of whatever origin for a table."""
    return Text(printable(text), style)
