"""What the authors of a library declare to be so on purpose: findings with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .outcomes import Outcome, Result


class Allowance(NamedTuple):
    """A check whose findings in an operator are no findings.

    Args:
        operator: with or without the namespace.
        check: a name in ``run.CHECKS``.
        reason: why it is so.
    """

    operator: str
    check: str
    reason: str

    def covers(self, result: Result) -> bool:
        """Whether a result is what it allows; nothing allows a crash."""
        names = (result.cell.operator, result.cell.operator.partition("::")[2])
        return self.operator in names and self.check == result.cell.check and result.outcome is Outcome.WRONG


def parse(text: str, checks: Sequence[str]) -> Allowance:
    """Read ``OPERATOR:CHECK=REASON``.

    Raises:
        ValueError: it is something else, or there is no such check.
    """
    named, _, reason = text.partition("=")
    operator, _, check = named.rpartition(":")
    if not operator.rstrip(":") or not reason.strip():
        raise ValueError(f"{text!r} is not OPERATOR:CHECK=REASON, such as waves::round:gradients=straight-through")
    if check not in checks:
        raise ValueError(f"no check {check!r} in {text!r}; checks are: {', '.join(checks)}")
    return Allowance(operator, check, reason.strip())


def apply(results: list[Result], allowances: Sequence[Allowance]) -> list[Result]:
    """The results, with what is allowed marked so, and its reason in front of the message."""
    found = []
    for result in results:
        reason = next((one.reason for one in allowances if one.covers(result)), "")
        message = f"{reason} ({result.message})"
        found.append(result._replace(outcome=Outcome.ALLOWED, message=message) if reason else result)
    return found
