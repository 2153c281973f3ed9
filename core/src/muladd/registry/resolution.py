"""Who gets a dispatch key when several backends want it.

Pure functions: the answer depends on plugins and policy, not on the order in which they were found.
"""

from __future__ import annotations

from dataclasses import dataclass

from .backend import Backend
from .discovery import FoundPlugin
from .policy import Policy


@dataclass(frozen=True)
class Claim:
    """A compatible backend with the operators it wants, spelled out."""

    plugin: FoundPlugin
    backend: Backend
    operators: frozenset[str]

    def conflicts_with(self, other: Claim) -> bool:
        """Whether both want some operator at the same dispatch key."""
        return self.backend.dispatch_key == other.backend.dispatch_key and not self.operators.isdisjoint(
            other.operators
        )


def precedence(claim: Claim, policy: Policy) -> tuple[int, int, bool, str, str]:
    """Sort key: policy preference, priority, first-party before third-party, name; the distribution breaks ties."""
    backend = claim.backend
    return (
        policy.rank(backend.dispatch_key, backend.name),
        -backend.priority,
        claim.plugin.distribution not in policy.first_party,
        backend.name,
        claim.plugin.distribution,
    )


def deciding_rule(winner: Claim, loser: Claim, policy: Policy) -> str:
    """The first criterion in which two claims differ, in words."""
    key = winner.backend.dispatch_key
    rules = (
        f"[policy] prefer for {key} names it first",
        f"its priority is higher ({winner.backend.priority} against {loser.backend.priority})",
        "it is first-party",
        "its name sorts first",
        "its distribution sorts first",
    )
    pairs = zip(precedence(winner, policy), precedence(loser, policy), rules, strict=True)
    return next(rule for won, lost, rule in pairs if won != lost)
