"""Text of plugins, files and variables, as a terminal may have it.

The registry keeps such text as it is and escapes it where it leaves: in its exceptions (``RegistryError``), in its
warnings and in str() of what they are made of (``describe``, ``Finding``), in log records and the trace (``Tracer``),
in the table of ``backends()``, and in what commands print (``cli.console``).
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with escapes in the place of what cannot be printed, but for the ends of lines.

    Control characters move the cursor and ring, others change the direction of writing, halves of a pair end the
    encoding. Text that has been escaped stays as it is.
    """
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
