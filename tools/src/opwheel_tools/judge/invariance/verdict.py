"""What a judgement of claims comes to."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from opwheel.formats import Format

from .claims import Claim

FORMAT = Format("opwheel judge --invariant", 1)


def text_of(claim: Claim) -> str:
    """A claim as the command takes it."""
    name, dimensions = claim
    return name + (":" + ",".join(f"{key}={dim}" for key, dim in dimensions.items()) if dimensions else "")


class Checked(NamedTuple):
    """A claim, and what its checks came to.

    Args:
        claim: as the command takes it.
        held: on how many of the given calls.
        found: what differs, of each call where something does.
        not_tried: why it was not tried on the other calls.
        left_out: larger arguments that the candidate refuses.
    """

    claim: str
    held: int = 0
    found: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class InvarianceVerdict(NamedTuple):
    """What a judgement of claims comes to.

    Args:
        candidate: its name.
        claims: each with what was found.
        calls: how many were given.
    """

    candidate: str
    claims: tuple[Checked, ...]
    calls: int

    @property
    def is_invariant(self) -> bool:
        """Whether every claim held on every call on which it could be tried."""
        return not any(one.found for one in self.claims)

    @property
    def line(self) -> str:
        """The verdict in one line."""
        wrong = [one.claim for one in self.claims if one.found]
        calls = f"{self.calls} call" + ("s" if self.calls != 1 else "")
        if wrong:
            return f"NOT INVARIANT: {self.candidate}: {'; '.join(wrong)} ({calls})"
        return f"invariant: {self.candidate}: {'; '.join(one.claim for one in self.claims)} ({calls}, no bit differs)"

    @property
    def report(self) -> str:
        """The verdict, and what was found."""
        lines = [self.line]
        for one in self.claims:
            lines += [f"{one.claim}: {text}" for text in one.found]
        for one in self.claims:
            lines += [f"note: {one.claim}: not tried: {text}" for text in dict.fromkeys(one.not_tried)]
            lines += [f"note: {one.claim}: left out: {text}" for text in list(dict.fromkeys(one.left_out))[:2]]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` writes."""
        return {
            "format": FORMAT.as_json(),
            "candidate": self.candidate,
            "is_invariant": self.is_invariant,
            "calls": self.calls,
            "claims": [one._asdict() for one in self.claims],
            "torch": torch.__version__,
        }
