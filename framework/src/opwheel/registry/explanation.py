"""Which backend serves an operator on a device, who else wanted to, and why it is so."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from .policy import Policy
from .resolution import Claim, precedence
from .status import BackendStatus, State


class Choice(NamedTuple):
    """The answer for one operator on one device type.

    ``winner`` is None where no kernel is loaded. ``others`` are the backends for that device that do not serve the
    operator. ``rules`` says of those of them that are loaded, and claim the operator, why another backend has it: by
    the name of the one that lost, the other's name and the rule. ``blocked`` says by dispatch key why calls that arrive
    there raise, whoever wins; keys of other devices are left out.
    """

    operator: str
    device_type: str
    dispatch_key: str
    winner: BackendStatus | None
    others: tuple[BackendStatus, ...]
    blocked: Mapping[str, str] = MappingProxyType({})
    rules: Mapping[str, str] = MappingProxyType({})


def explain(
    statuses: Iterable[BackendStatus],
    operator: str,
    device_type: str,
    blocked: Mapping[tuple[str, str], str],
    deciding_rule: Callable[[str, str], str],
) -> Choice:
    """Pick out what the statuses, and the blocked pairs of operator and key, say about it on one device type.

    ``deciding_rule`` says why the first of two backends, given by name, comes before the second.
    """
    statuses = list(statuses)
    concerned = [status for status in statuses if status.device_type == device_type]
    serving = [status for status in concerned if status.state is State.LOADED and operator in status.operators]
    winner = serving[0] if serving else None
    key = next((status.dispatch_key for status in [*serving, *concerned] if status.dispatch_key), "")
    elsewhere = {status.dispatch_key for status in statuses if status not in concerned}
    here = {key: why for (name, key), why in blocked.items() if name == operator and key not in elsewhere}
    others = tuple(status for status in concerned if status is not winner)
    rules = {}
    for status in others:
        owner = dict(status.served_by_others).get(operator)
        if owner and status.state is State.LOADED:
            rules[status.name] = f"{owner!r} has this operator: {deciding_rule(owner, status.name)}"
    return Choice(operator, device_type, key, winner, others, here, rules)


def digest(claims: Iterable[Claim], policy: Policy, foreign: list[list[str]]) -> str:
    """A fingerprint of who comes first for which dispatch key.

    It depends on the plugins that the policy lets in (name, distribution, version, operators, claims of invariance that
    they do not keep) and on its order, not on the machine, the order of installation, which libraries happened to open
    or what ``load()`` has added; and on the kernels for operators of others that are on (``foreign``). Equal digests,
    equal choice.
    """
    admitted = [claim for claim in claims if policy.rejects(claim.backend.name, "") is None]
    ordered = sorted(admitted, key=lambda claim: (claim.backend.dispatch_key, *precedence(claim, policy)))
    rows = [
        [
            claim.backend.dispatch_key,
            claim.backend.name,
            claim.plugin.distribution,
            claim.plugin.version,
            sorted(claim.operators),
            claim.is_divisible,
            sorted((name, sorted(claims)) for name, claims in claim.backend.not_invariant.items()),
        ]
        for claim in ordered
    ]
    text = json.dumps([rows, policy.fallback, *foreign], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
