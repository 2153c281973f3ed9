"""Loads the backends that win, in order, and keeps track of whose kernels are in the dispatcher."""

from __future__ import annotations

import time
from collections.abc import Iterable

from .dispatcher import Registrations, difference, has_kernel, operator_names, registrations
from .elf import may_define_operators
from .statuses import Ledger
from .loading import Loaded, LoadError, run_probe
from .policy import Policy
from .resolution import Claim, deciding_rule, precedence
from .status import State


class Settlement:
    """Who owns which kernels.

    ``owners`` maps (operator, dispatch key) to a backend's name, also where a broken one could not be removed.
    """

    def __init__(self, namespace: str, policy: Policy, ledger: Ledger) -> None:
        self.owners: dict[tuple[str, str], str] = {}
        self._namespace = namespace
        self._policy = policy
        self._ledger = ledger
        self._catalogue: frozenset[str] = frozenset()
        self._registered: Registrations | None = None  # what the last backend left, while nobody else adds to it
        self._claims: dict[str, Claim] = {}
        self._loaded: dict[str, Loaded] = {}

    def settle(self, claims: list[Claim], catalogue: Iterable[str]) -> None:
        """Probe and load in order of precedence; whoever comes later and wants the same operator is shadowed."""
        self._catalogue = frozenset(catalogue)
        self._registered = None
        self._claims.update({claim.backend.name: claim for claim in claims})
        for claim in self._in_order(claims):
            owner = next((self.owners[pair] for pair in sorted(claim.pairs) if pair in self.owners), None)
            if owner is not None:
                self._shadow(claim, owner)
                continue
            try:
                probe = run_probe(claim.backend, self._policy.probe_timeout_s)
                if probe.ok:
                    self._load(claim)
                else:
                    self._ledger.record(
                        claim.plugin,
                        State.UNSUPPORTED,
                        backend=claim.backend,
                        code="OPWHEEL-E040",
                        reason=probe.reason or "its probe says no and gives no reason",
                        fix=probe.fix or f"see the documentation of {claim.plugin.distribution}",
                    )
            except LoadError as error:
                self._ledger.fail(claim.plugin, claim.backend, error, code=error.code, fix=error.fix)

    def forecast(self, claims: list[Claim]) -> dict[tuple[str, str], str]:
        """``owners`` as :meth:`settle` would leave it if every library opens and has all that is claimed."""
        owners = dict(self.owners)
        for claim in self._in_order(claims):
            if not claim.pairs & owners.keys() and self._is_supported(claim):
                owners.update(dict.fromkeys(claim.pairs, claim.backend.name))
        return owners

    def _in_order(self, claims: list[Claim]) -> list[Claim]:
        return sorted(claims, key=lambda claim: (claim.backend.dispatch_key, *precedence(claim, self._policy)))

    def _is_supported(self, claim: Claim) -> bool:
        try:
            return run_probe(claim.backend, self._policy.probe_timeout_s).ok
        except LoadError:
            return False

    def _shadow(self, claim: Claim, owner: str) -> None:
        key, name = claim.backend.dispatch_key, claim.backend.name
        if self._ledger.statuses[owner].state is State.LOADED:
            rule = deciding_rule(self._claims[owner], claim, self._policy)
            fix = f'to choose it, set prefer = {{ {key} = ["{name}"] }} under [policy] in plugins.toml'
        else:
            rule = "it is broken, but its kernels cannot be removed from this process"
            fix = f"uninstall or disable {owner!r}"
        self._ledger.record(
            claim.plugin,
            State.SHADOWED,
            backend=claim.backend,
            code="OPWHEEL-E024",
            reason=f"{owner!r} owns {key}: {rule}",
            fix=fix,
        )

    def _load(self, claim: Claim) -> None:
        backend, key = claim.backend, claim.backend.dispatch_key
        defines = any(may_define_operators(path) for path in backend.libraries)
        before = self._registrations(defines=defines, reuse=True)
        loaded = Loaded()
        start = time.perf_counter()
        try:
            loaded.open(backend, self._namespace)
            load_ms = (time.perf_counter() - start) * 1e3
            covered = self._covered(claim, before, self._registrations(defines=defines))
        except LoadError as error:
            loaded.undo()
            stuck = difference(self._registrations(defines=defines), before)
            if not stuck:
                raise
            self._record_stuck(claim, error, stuck)
            return
        self._loaded[backend.name] = loaded
        self.owners.update({(operator, key): backend.name for operator in covered})
        missing = tuple(sorted(claim.operators - covered))
        self._ledger.record(
            claim.plugin,
            State.LOADED,
            backend=backend,
            code="OPWHEEL-E053" if missing else "",
            reason=f"no kernel for {', '.join(missing)}" if missing else "",
            fix=f"pip install --upgrade {claim.plugin.distribution}" if missing else "",
            operators=tuple(sorted(covered)),
            missing=missing,
            load_ms=load_ms,
        )

    def _registrations(self, *, defines: bool, reuse: bool = False) -> Registrations:
        """What the dispatcher holds, as far as a backend can change it that ``defines`` operators, or does not.

        With ``reuse``, what the last one left.
        """
        if defines:
            self._registered = None
            return registrations(self._namespace, operator_names(self._namespace))
        if self._registered is None or not reuse:
            self._registered = registrations(self._namespace, self._catalogue)
        return self._registered

    def _covered(self, claim: Claim, before: Registrations, after: Registrations) -> set[str]:
        """The claimed operators that have a kernel now.

        Raises:
            LoadError: there is none, or something was registered that is not claimed.
        """
        key = claim.backend.dispatch_key
        added = difference(after, before)
        names = {operator for operator, k in added if k == ""} - self._catalogue
        unclaimed = [f"{name} (not in the catalogue)" for name in names]
        unclaimed += [f"{op} at {k}" for op, k in added - claim.pairs if k and op not in names]
        if unclaimed:
            raise LoadError("OPWHEEL-E054", f"it registered what it does not claim: {', '.join(sorted(unclaimed))}")
        covered = {operator for operator in claim.operators if has_kernel(self._namespace, operator, key)}
        if not covered:
            raise LoadError("OPWHEEL-E051", f"it registered no kernel at {key}")
        return covered

    def _record_stuck(self, claim: Claim, error: LoadError, stuck: set[tuple[str, str]]) -> None:
        """Kernels that stay although their backend is broken keep every other backend off what they occupy."""
        name = claim.backend.name
        kernels = ", ".join(sorted(f"{operator} at {key}" for operator, key in stuck if key))
        consequence = f"; the library cannot be unloaded, so that its kernels stay in this process: {kernels}"
        fix = f"uninstall {claim.plugin.distribution} or disable {name!r} in plugins.toml, then start the process anew"
        self._ledger.fail(claim.plugin, claim.backend, error, code=error.code, fix=fix, consequence=consequence)
        for owner in {self.owners[pair] for pair in stuck & self.owners.keys()}:
            self._ledger.lose(
                owner, {operator for operator, key in stuck if self.owners.get((operator, key)) == owner}, name
            )
        self.owners.update(dict.fromkeys(stuck, name))
