"""Values, exceptions and processes in words, as messages have them.

The registry keeps text of plugins, files and variables as it is and escapes it where it leaves: in its exceptions
(``RegistryError``), in its warnings and in str() of what they are made of (``describe``, ``Finding``), in log records
and the trace (``Tracer``), in the table of ``backends()``, and in what commands print (``commands.console``).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any


def printable(text: str) -> str:
    """The text with escapes in the place of what cannot be printed, but for the ends of lines.

    Control characters move the cursor and ring, others change the direction of writing, halves of a pair end the
    encoding. Text that has been escaped stays as it is.
    """
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def how_it_ended(code: int) -> str:
    """A process's exit status in words, as subprocess gives it: negative numbers are signals."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def describe_exception(error: BaseException) -> str:
    """Class and text of an exception, on one line."""
    text = _shorten(" ".join(_shown(str, error).split()), 2000)
    return f"{_class_name(error)}: {text}" if text else _class_name(error)


def describe_failure(error: Exception) -> str:
    """What failed, and the exception that made it fail where there is one."""
    cause = error.__cause__
    return str(error) if cause is None else f"{error}: {describe_exception(cause)}"


def describe_value(value: object, depth: int = 3) -> str:
    """What a plugin handed over, shortened: values of built-in classes as ``repr`` shows them, of others the class."""
    kind: Any = type(value)
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"<int of {value.bit_length()} bits>"  # repr() refuses thousands of digits
    if kind in (str, bytes):
        return _shorten(repr(value[:200]))  # type: ignore[index]
    if kind in _PLAIN:
        return _shorten(_shown(repr, value))
    if kind in _BRACKETS and depth:
        return _shorten(_BRACKETS[kind].format(", ".join(_described(value, depth - 1))))
    return f"<{_class_name(value)} object>"


_PLAIN = (type(None), bool, int, float, complex, type(Path()))
_BRACKETS = {list: "[{}]", tuple: "({})", set: "{{{}}}", frozenset: "{{{}}}", dict: "{{{}}}"}


def _described(values: Any, depth: int) -> Iterator[str]:
    """Up to 20 items of a built-in collection."""
    items = values.items() if type(values) is dict else ((item,) for item in values)
    for item in islice(items, 20):
        yield ": ".join(describe_value(part, depth) for part in item)
    if len(values) > 20:
        yield "..."


def _shorten(text: str, length: int = 200) -> str:
    return text if len(text) <= length else f"{text[:length]}..."


def _class_name(value: object) -> str:
    return type(value).__name__


def _shown(show: Callable[[Any], str], value: object) -> str:
    try:
        return show(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin's own __str__ may fail, too, or end the process
        return f"<{_class_name(value)} that cannot be shown: {_class_name(error)}>"
