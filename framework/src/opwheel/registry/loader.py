"""Loads the backends in order, each with the operators that are left to it, and knows whose kernels are registered."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from .._torch.private import why_no_device
from .backend import Backend, Probe
from .discovery import FoundPlugin, PluginError
from .dispatcher import Pair, has_kernel, listed
from .elf import may_define_operators
from .isolation import Isolation
from .loading import Loaded, LoadError, run_probe
from .policy import Policy
from .references import forget, is_reference
from .resolution import Claim, deciding_rule, describe_share, precedence, share_of, why_shadowed
from .status import State
from .statuses import Statuses

if TYPE_CHECKING:
    from .lock import Guard

# Of a probe that gives no reason.
_HOW_TO_SAY_IT = '; its author says more: Probe(False, reason="what is missing", fix="what to do")'


class Loader:
    """Loads the backends of one library.

    ``owners`` says whose kernels are in the dispatcher: (operator, dispatch key) to a backend's name. A broken backend
    whose kernels could not be removed is in it, too. ``without_device`` has the names of backends that are unsupported
    while no package has registered their device with PyTorch. ``guard`` compares ``owners`` with the lock file, if
    there is one.
    """

    def __init__(self, namespace: str, policy: Policy, statuses: Statuses, isolation: Isolation) -> None:
        self.owners: dict[Pair, str] = {}
        self.without_device: set[str] = set()
        self.guard: Guard | None = None
        self._namespace = namespace
        self._policy = policy
        self._statuses = statuses
        self._isolation = isolation
        self._claims: dict[str, Claim] = {}
        self._loaded: dict[str, Loaded] = {}

    def set_policy(self, policy: Policy) -> None:
        """Another one, for what is loaded and for what will be."""
        self._policy = policy
        for loaded in self._loaded.values():
            loaded.set_memory(policy)

    def load(self, claims: list[Claim]) -> None:
        """Probe and load in order of precedence. Each gets what is left of its claim; it is shadowed if nothing is.

        Raises:
            LockError: others would win, or have won, than the lock file says.
        """
        if self.guard is not None:
            self.guard.check_winners(claims, self.forecast(claims))
        self._load_in_order(claims)
        if self.guard is not None:
            self.guard.check_winners(claims, self.owners)

    def _load_in_order(self, claims: list[Claim]) -> None:
        self._claims.update({claim.backend.name: claim for claim in claims})
        for claim in self._in_order(claims):
            others = {operator: name for operator, key in sorted(claim.pairs) if (name := self.owner((operator, key)))}
            share = share_of(claim, self.owned())
            if others and not share.operators:
                self._shadow(claim, others)
                continue
            self.without_device.discard(claim.backend.name)
            try:
                probe = self._probe(claim)
                if probe.ok:
                    self._load_one(share, others)
                else:
                    if self.guard is None and why_no_device(claim.backend.device_type):  # what is locked stays
                        self.without_device.add(claim.backend.name)
                    self._statuses.record(
                        claim.plugin,
                        State.UNSUPPORTED,
                        backend=claim.backend,
                        code="OPWHEEL-E040",
                        reason=probe.reason or "its probe says no and gives no reason",
                        fix=probe.fix or f"see the documentation of {claim.plugin.distribution}{_HOW_TO_SAY_IT}",
                    )
            except LoadError as error:
                self.expel(claim.plugin, error, claim.backend)

    def arrived(self) -> list[Claim]:
        """Those of ``without_device`` whose device there is by now."""
        claims = [self._claims[name] for name in sorted(self.without_device)]
        return [claim for claim in claims if not why_no_device(claim.backend.device_type)]

    def forecast(self, claims: list[Claim]) -> dict[Pair, str]:
        """``owners`` as :meth:`load` would leave it if every library opens and has all that is claimed."""
        owners, taken = dict(self.owners), self.owned()
        for claim in self._in_order(claims):
            share = share_of(claim, taken)
            if share.operators and self._is_supported(claim):
                owners.update(dict.fromkeys(share.pairs, claim.backend.name))
                taken |= share.pairs
        return owners

    def expel(self, plugin: FoundPlugin, error: PluginError | LoadError, backend: Backend | None = None) -> None:
        """Record a broken backend; calls that reach what its code has registered raise from now on."""
        left = self._isolation.take_left(backend.dispatch_key if backend else "")
        consequence = others = ""
        if left:
            consequence = f"; what cannot be removed stays, and calls that reach it raise: {listed(left)}"
            keep_out = f"uninstall {plugin.distribution} or disable {plugin.name!r} in plugins.toml"
            others = f"{keep_out}, then restart the process"
            self._isolation.block(
                left.keys(),
                f"{plugin.name!r} ({plugin.distribution} {plugin.version}) registered what it may not, and that cannot "
                f"be removed; to fix it: {others}",
            )
        self._statuses.fail(
            plugin, backend, error, code=error.code, fix=error.fix, others=others, consequence=consequence
        )
        for owner in {owner for pair in left if (owner := self.owner(pair))}:
            lost = {pair[0] for pair in left if self.owner(pair) == owner}
            self._statuses.lose(owner, lost, plugin.name)
        self.owners.update(dict.fromkeys(left, plugin.name))

    def is_stuck_or_loaded(self, name: str) -> bool:
        """Whether kernels of the backend are in the dispatcher. To open what could not be removed would do nothing."""
        return name in self.owners.values()

    def owner(self, pair: Pair) -> str | None:
        """The loaded backend whose kernel is there. Over one that a broken backend has left, others may be loaded."""
        name = self.owners.get(pair)
        return name if name and self._statuses.by_name[name].state is State.LOADED else None

    def owned(self) -> set[Pair]:
        """What the loaded backends have."""
        return {pair for pair in self.owners if self.owner(pair)}

    def deciding_rule(self, winner: str, loser: str) -> str:
        """Why one of two backends that were loaded, or wanted to be, comes before the other."""
        return deciding_rule(self._claims[winner], self._claims[loser], self._policy)

    def _probe(self, claim: Claim) -> Probe:
        backend, probe = claim.backend, Probe(True)
        if backend.probe is not None:
            with self._isolation.watch("its probe", key=backend.dispatch_key):
                probe = run_probe(backend.name, backend.probe, self._policy.probe_timeout_s)
        absent = why_no_device(backend.device_type) if probe.ok else ""
        if not absent:
            return probe
        from .devices import how_to_register

        return Probe(False, absent, how_to_register(backend.device_type))

    def _in_order(self, claims: list[Claim]) -> list[Claim]:
        return sorted(claims, key=lambda claim: (claim.backend.dispatch_key, *precedence(claim, self._policy)))

    def _is_supported(self, claim: Claim) -> bool:
        try:
            return self._probe(claim).ok
        except LoadError as error:
            self.expel(claim.plugin, error, claim.backend)
            return False

    def _shadow(self, claim: Claim, others: dict[str, str]) -> None:
        key, name = claim.backend.dispatch_key, claim.backend.name
        winners = [self._claims[owner] for owner in set(others.values())]
        fix = f'to choose it, set prefer = {{ {key} = ["{name}"] }} under [policy] in plugins.toml'
        self._statuses.record(
            claim.plugin,
            State.SHADOWED,
            backend=claim.backend,
            code="OPWHEEL-E024",
            reason=why_shadowed(claim, winners, len(others), self._policy),
            fix=fix,
            served_by_others=tuple(others.items()),
        )

    def _load_one(self, claim: Claim, others: dict[str, str]) -> None:
        """Load a backend for what is left to it; ``others`` has the backends of the operators that are not, by name."""
        backend, key = claim.backend, claim.backend.dispatch_key
        may_define = any(may_define_operators(path) for path in backend.libraries)
        loaded = self._loaded[backend.name] = Loaded()
        forget(self._namespace, key)  # of a backend that was there and failed
        start = time.perf_counter()
        try:
            with self._isolation.watch("it", key=key, claimed=claim.pairs, may_define=may_define) as watched:
                loaded.open(backend, self._namespace, {*others, *claim.changed})
                loaded.set_memory(self._policy)
                load_ms = (time.perf_counter() - start) * 1e3
            covered = self._covered(claim, watched.added)
        except (LoadError, KeyboardInterrupt):
            loaded.undo()
            raise
        self._isolation.unblock({(operator, key) for operator in covered})
        self.owners.update({(operator, key): backend.name for operator in covered})
        lacking = sorted(claim.operators - covered)
        reasons = [
            describe_share(claim, self._claims[backend.name], set(others.values())) if others else "",
            f"no kernel for {', '.join(lacking)}" if lacking else "",
            *claim.changed.values(),
        ]
        fixes = [
            "its author registers them, or leaves them out of operators=" if lacking else "",
            "its author builds it again, with this core" if claim.changed else "",
        ]
        fix = "; ".join(filter(None, fixes))
        self._statuses.record(
            claim.plugin,
            State.LOADED,
            backend=backend,
            code="OPWHEEL-E032" if claim.changed else "OPWHEEL-E053" if lacking else "",
            reason="; ".join(filter(None, reasons)),
            fix=f"pip install --upgrade {claim.plugin.distribution}; {fix}" if fix else "",
            operators=tuple(sorted(covered)),
            by_reference=tuple(sorted(o for o in covered if is_reference(f"{self._namespace}::{o}", key))),
            missing=tuple(sorted({*lacking, *claim.changed})),
            served_by_others=tuple(others.items()),
            load_ms=load_ms,
        )

    def undo(self) -> None:
        """Take out whatever was loaded."""
        for loaded in self._loaded.values():
            loaded.undo()
        self.owners.clear()

    def _covered(self, claim: Claim, added: Collection[Pair]) -> set[str]:
        """The claimed operators that have a kernel now, of which ``added`` were registered just now.

        Raises:
            LoadError: there is none.
        """
        key = claim.backend.dispatch_key
        # Not from `added` alone: a library that was open before adds nothing. Blocked places do not count: the kernel
        # there is the one that raises.
        there = {pair for pair in claim.pairs - self._isolation.blocked.keys() if has_kernel(self._namespace, *pair)}
        covered = {operator for operator, _ in there.union(added)}
        if not covered:
            is_part = claim.operators != self._claims[claim.backend.name].operators
            left = f" for what is left to it: {', '.join(sorted(claim.operators))}" if is_part else ""
            raise LoadError(
                "OPWHEEL-E051",
                f"it registered no kernel at {key}{left}",
                f"register what operators= names at its dispatch_key, by OPWHEEL_KERNELS({self._namespace}, "
                f"{key}, m) in what libraries= names or by library.impl(name, kernel) in what register= names",
            )
        return covered
