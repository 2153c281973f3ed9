"""Which of several backends at one dispatch key gets an operator: the first in order of precedence that claims it.

Pure functions: the answer depends on plugins and policy, not on the order in which they were found.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from .backend import Backend
from .discovery import FoundPlugin
from .policy import Policy


class Claim:
    """A compatible backend with the operators it wants, spelled out.

    Not among these are ``changed``, those that its kernels were compiled for other schemas of, with both in words.
    """

    def __init__(
        self,
        plugin: FoundPlugin,
        backend: Backend,
        operators: frozenset[str],
        changed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.plugin = plugin
        self.backend = backend
        self.operators = operators
        self.changed = changed

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """What it wants to own: operators, each at the backend's dispatch key."""
        return frozenset((operator, self.backend.dispatch_key) for operator in self.operators)

    @property
    def is_divisible(self) -> bool:
        """Whether the backend can register a part of its operators; a library registers all of them in one block."""
        return not self.backend.libraries


def share_of(claim: Claim, taken: Collection[tuple[str, str]]) -> Claim:
    """The claim with the operators that the backend gets: those that no other one has; none where it needs them all."""
    left = frozenset(operator for operator, key in claim.pairs.difference(taken))
    is_whole = len(left) == len(claim.operators)
    return Claim(claim.plugin, claim.backend, left if is_whole or claim.is_divisible else frozenset(), claim.changed)


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


def describe_share(share: Claim, claim: Claim, others: Iterable[str]) -> str:
    """Which part of its claim a backend has, in words. ``others`` are the names of the backends that have the rest."""
    rest = len(claim.operators) - len(share.operators)
    names = sorted(others)
    verb = "has" if len(names) == 1 else "have"
    plural = "" if rest == 1 else "s"
    return f"{len(share.operators)} of {len(claim.operators)} operators; {listed(names)} {verb} the other{plural}"


def why_shadowed(claim: Claim, winners: Collection[Claim], owned: int, policy: Policy) -> str:
    """Why a backend has nothing of what it claims, in words.

    Args:
        claim: what it wants.
        winners: the backends that have it.
        owned: how many of the claimed operators these have.
        policy: decides between two claims.
    """
    key, count = claim.backend.dispatch_key, len(claim.operators)
    rules = {winner.backend.name: deciding_rule(winner, claim, policy) for winner in winners}
    what = key if owned == count else f"{owned} of its {count} operators at {key}"
    if len(rules) == 1:
        [(name, rule)] = rules.items()
        text = f"{name!r} owns {what}: {rule}"
    else:
        text = f"{listed(f'{name!r} ({rule})' for name, rule in sorted(rules.items()))} own {what}"
    one_block = "; a library registers all operators in one block, so that this backend cannot have the rest alone"
    return text if owned == count else text + one_block


def listed(words: Iterable[str]) -> str:
    """Words as in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    *rest, last = words
    return f"{', '.join(rest)} and {last}" if rest else last
