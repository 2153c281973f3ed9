"""Byte code: what Python runs in place of a source file, and whether it is what the source says."""

from __future__ import annotations

import os
import warnings
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from types import CodeType
from typing import Any, cast


def runs_other_code(source: str) -> bool:
    """Whether an import of the file would run byte code that is not the source's.

    Python takes byte code for a source of the same time and size, and some without a look at the source at all: either
    may come of another text. The one sure answer is to compile the source and to compare.
    """
    if not os.path.exists(cache_from_source(source)):  # noqa: PTH110  # of hundreds of files: Path takes twice as long
        return False
    loader = _Reader("module", source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's warnings were shown when the byte code was made
            taken = cast("CodeType", loader.get_code("module"))
            said = loader.source_to_code(loader.get_data(source), source)
    except Exception:  # neither an unreadable source nor unreadable byte code comes from Python
        return True
    # Each comparison is slower than the one before, and nearly always needless.
    return taken != said and _without_positions(taken) != _without_positions(said) and _meaning(taken) != _meaning(said)


class _Reader(SourceFileLoader):
    """Decides as Python does which byte code to take, and writes none."""

    def set_data(self, path: str, data: object, *, _mode: int = 0) -> None:
        """Called with new byte code where there is none that fits the source."""


def _without_positions(code: CodeType) -> CodeType:
    """Without lines and columns: whether byte code has columns depends on options of the process that wrote it."""
    constants = tuple(_without_positions(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    return code.replace(co_consts=constants, co_linetable=b"")


_FIELDS = (
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_flags",
    "co_name",
    "co_varnames",
    "co_cellvars",
    "co_freevars",
)


def _meaning(value: Any) -> Any:
    """What byte code does, in lists and texts.

    Where there are no columns the compiler takes two functions with one text on one line for the same, so that the
    constants have other numbers.
    """
    if isinstance(value, CodeType):
        import dis

        constants = sorted(
            {repr(_meaning(constant)) for constant in value.co_consts}
        )  # the doc string is in no instruction
        code = [(step.opname, repr(_meaning(step.argval))) for step in dis.get_instructions(value)]
        return [getattr(value, field) for field in _FIELDS], constants, code
    if isinstance(value, tuple):
        return tuple(map(_meaning, value))
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
