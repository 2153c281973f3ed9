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
    NOT_TRIED = "not tried"


FINDINGS = (Outcome.WRONG, Outcome.CRASHES)


def key_of(operator: str, check: str, outcome: Outcome) -> str:
    """By what a baseline knows a finding: the same for all calls of the operator."""
    return f"{operator} {check} {outcome.value}"


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
    """What a cell came to.

    Args:
        cell: the cell.
        outcome: of it.
        message: what is wrong, what was raised, or why it was not tried.
        reproduction: a script that shows a finding; empty for everything else.
    """

    cell: Cell
    outcome: Outcome
    message: str = ""
    reproduction: str = ""

    @property
    def key(self) -> str:
        """By what a baseline knows it, where it is a finding."""
        return key_of(self.cell.operator, self.cell.check, self.outcome)
