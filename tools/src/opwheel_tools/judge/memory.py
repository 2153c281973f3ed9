"""Programs in memory that lies between guards: what is read or written out of bounds shows."""

# ruff: noqa: D103
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ..testing.guarded_memory import LARGE, NAN, Guards, guarded_memory, why_not


class OutOfBounds(Exception):  # noqa: N818  # what a program has found
    """Memory was written out of bounds; the message says where."""

    code = None


class NotGuarded(Exception):  # noqa: N818  # the trial says nothing
    """Memory cannot be guarded here."""

    code = None


def guarded(run: Callable[..., Any], byte: int, t: list[Tensor]) -> Any:
    """Run a function of tensors with copies of these; all memory is filled with a byte, and has it around.

    Raises:
        OutOfBounds: memory was written out of bounds.
        NotGuarded: there is no compiler for the allocator.
    """
    if reason := why_not():
        raise NotGuarded(f"memory out of bounds is not watched: {reason}")
    with guarded_memory(byte, is_filled=True) as guards:
        results = run([x.clone() for x in t])
    _check(guards)
    return results


@contextmanager
def watched(*, is_needed: bool) -> Iterator[None]:
    """Let what is allocated lie between guards, where that can be, so that what is written out of bounds is seen.

    New memory is filled with small numbers, so that a trial gives the same each time.

    Args:
        is_needed: whether it is; what runs below does it itself where not.

    Raises:
        OutOfBounds: memory was written out of bounds.
    """
    if not is_needed or why_not():
        yield
        return
    with guarded_memory(is_filled=True) as guards:
        yield
    _check(guards)


def _check(guards: Guards) -> None:
    if guards.anywhere:
        raise OutOfBounds(f"it writes {guards.anywhere} memory that is its own")


def among_nan(run: Callable[..., Any], t: list[Tensor]) -> Any:
    return guarded(run, NAN, t)


def among_large(run: Callable[..., Any], t: list[Tensor]) -> Any:
    return guarded(run, LARGE, t)
