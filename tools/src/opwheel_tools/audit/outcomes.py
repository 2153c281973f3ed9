"""What a check of a call came to."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Outcome(str, Enum):
    """Of a cell."""

    RIGHT = "right"
    RAISES = "raises"
    WRONG = "silently wrong"
    CRASHES = "crashes"
    ALLOWED = "allowed"
    NOTED = "noted"
    NOT_TRIED = "not tried"


FINDINGS = (Outcome.WRONG, Outcome.CRASHES)


def where(outcome: Outcome, message: str) -> str:
    """The words of a message that are the same for all calls that show it: which result or argument, and how."""
    return message.partition(": ")[0] if outcome is Outcome.WRONG else ""


def key_of(operator: str, check: str, outcome: Outcome, message: str) -> str:
    """By what a baseline knows a finding: the same for all calls of the operator, another for another result."""
    return ": ".join(filter(None, [f"{operator} {check} {outcome.value}", where(outcome, message)]))


class Cell(NamedTuple):
    """One check of one call.

    Args:
        operator: ``"namespace::name.overload"``.
        call: which of the audit's calls.
        check: a name in ``checks.CHECKS``.
        origin: of the call.
    """

    operator: str
    call: int
    check: str
    origin: str


class Result(NamedTuple):
    """What a cell came to; one for each thing that is wrong.

    Args:
        cell: the cell.
        outcome: of it.
        message: what is wrong, what was raised, why it is allowed, or why it was not tried.
        reproduction: a script that shows a finding; empty for everything else.
    """

    cell: Cell
    outcome: Outcome
    message: str = ""
    reproduction: str = ""

    @property
    def key(self) -> str:
        """By what a baseline knows it, where it is a finding."""
        return key_of(self.cell.operator, self.cell.check, self.outcome, self.message)
