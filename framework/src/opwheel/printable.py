"""Text of plugins, files and variables, as a terminal may have it."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with escapes in the place of control characters: they could move the cursor, or end the encoding."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
