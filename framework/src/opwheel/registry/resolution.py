"""Who gets a dispatch key when several backends want it.

Pure functions: the answer depends on plugins and policy, not on the order in which they were found.
"""

from typing import NamedTuple

from .backend import Backend
from .discovery import FoundPlugin
from .policy import Policy


class Claim(NamedTuple):
    """A compatible backend with the operators it wants, spelled out."""

    plugin: FoundPlugin
    backend: Backend
    operators: frozenset[str]

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """What it wants to own: operators, each at the backend's dispatch key."""
        return frozenset((operator, self.backend.dispatch_key) for operator in self.operators)


def precedence(claim: Claim, policy: Policy) -> tuple[int, int, bool, str]:
    """Sort key: policy preference, priority, first-party before third-party, name. No two claims have one name."""
    backend = claim.backend
    return (
        policy.rank(backend.dispatch_key, backend.name),
        -backend.priority,
        claim.plugin.distribution not in policy.first_party,
        backend.name,
    )


def deciding_rule(winner: Claim, loser: Claim, policy: Policy) -> str:
    """The first criterion in which two claims differ, in words."""
    key = winner.backend.dispatch_key
    won, lost = precedence(winner, policy), precedence(loser, policy)
    if won > lost:
        return "it was loaded before"  # by load(), against the order
    rules = (
        f"[policy] prefer for {key} names it first",
        f"its priority is higher ({winner.backend.priority} against {loser.backend.priority})",
        "it is first-party",
        "its name sorts first",
    )
    return next(rule for better, worse, rule in zip(won, lost, rules, strict=True) if better != worse)
