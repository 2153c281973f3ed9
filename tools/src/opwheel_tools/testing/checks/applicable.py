"""Inputs that the kit makes and the reference refuses: they show nothing about the operator.

A check that compares with the reference calls it first, inside of :func:`of_the_reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opwheel.text import describe_exception

_LENGTH = 160


class NotApplicableError(Exception):
    """A check cannot be made with an input, for a reason that is no failure of the operator; the message says which."""

    code = None


class DeclarationError(Exception):
    """The reference raises on a sample that the author has written: the declaration contradicts itself."""

    code = "OPWHEEL-E098"


@contextmanager
def of_the_reference(what: str) -> Iterator[None]:
    """What is raised in here is the reference's, on an input that the kit has made or in a transformation.

    Args:
        what: was given to it, or done with it, for the message.

    Raises:
        NotApplicableError: with the reference's words.
    """
    try:
        yield
    except NotApplicableError:
        raise
    except Exception as error:
        raise NotApplicableError(f"{what}: the reference raises {shown(error)}") from error


def shown(error: Exception) -> str:
    """An exception, short enough for a line of the report."""
    text = describe_exception(error)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}..."


@contextmanager
def unless_reference_raises(what: str, reference: Callable[[], Any]) -> Iterator[None]:
    """An exception in here is the operator's, unless the reference raises the same one in its place.

    Args:
        what: is done, for the message.
        reference: does it with the reference, with arguments of its own.

    Raises:
        NotApplicableError: with the reference's words.
    """
    try:
        yield
    except Exception as error:
        try:
            reference()
        except Exception as other:
            if (type(other), str(other)) == (type(error), str(error)):
                raise NotApplicableError(f"{what}: the reference raises {shown(other)}") from error
        raise
