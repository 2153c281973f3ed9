"""An operator library: a namespace of operators whose kernels come from backend plugins."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .backend import Backend
from .discovery import FoundPlugin, PluginError, find_plugins, read_backend
from .dispatcher import is_dispatch_key
from .errors import BackendUnavailableError, LockError, NoKernelError
from .explanation import Choice, digest, explain
from .statuses import Ledger, describe
from .loading import LoadError, check_compatible
from .policy import Policy, read_policy
from .resolution import Claim
from .schemas import open_schemas
from .loader import Settlement
from .status import BackendStatus, Finding, State
from .trace import Tracer

if TYPE_CHECKING:
    from .lock import Guard, Snapshot

# Which of several backends for a device a failed call tells about: the one that is closest to working.
_TELLING = (State.LOADED, State.BROKEN, State.INCOMPATIBLE, State.UNSUPPORTED, State.DISABLED, State.SHADOWED)


class OperatorLibrary:
    """Loads a library's schemas and backends, and knows what became of each backend.

    Args:
        namespace: of the operators in the dispatcher, ``torch.ops.<namespace>``. In upper case it is the prefix of the
            environment variables.
        operators: base names of what the schema library defines, to see that nobody else has done so.
        schema_library: the shared library that defines the operators. It exports ``<namespace>_schemas``.
        entry_point_group: where backends register themselves.
        plugins_file: the shipped plugins.toml.
        distribution: the wheel this library comes in, for messages.
    """

    def __init__(
        self,
        namespace: str,
        *,
        operators: Iterable[str],
        schema_library: Path,
        entry_point_group: str,
        plugins_file: Path,
        distribution: str,
    ) -> None:
        self.namespace = namespace
        self.distribution = distribution
        self.schema_library = schema_library
        self.entry_point_group = entry_point_group
        self.prefix = namespace.upper()
        self.abi = 0
        self._expected = tuple(operators)
        self.schemas: tuple[str, ...] = ()
        self.policy: Policy = read_policy(plugins_file, os.environ, self.prefix)
        self.trace = Tracer(namespace, self.policy.trace)
        self._ledger = Ledger(namespace, self.policy, self.trace)
        self._plugins: dict[str, FoundPlugin] = {}
        self._has_searched = False
        self._waiting: list[FoundPlugin] = []  # found, not read yet
        self._claims: dict[str, Claim] = {}
        self._unsettled: list[Claim] = []
        self._settlement = Settlement(namespace, self.policy, self._ledger)
        self._lock = threading.RLock()
        self._was_deferred = False
        self._thread = threading.local()
        self._guard: Guard | None = None

    # ---- schemas -----------------------------------------------------------------------------------------------------

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all schemas, with the overload: ``"name"``, ``"name.out"``."""
        return tuple(schema.partition("(")[0] for schema in self.schemas)

    def load_schemas(self) -> None:
        """Open the schema library and read the catalogue back from it.

        Raises:
            ImportError: the library is missing, or something else in this process has defined the namespace already.
            LockError: what is installed differs from the lock file.
        """
        if self.policy.lock:
            from .lock import Guard

            self._guard = Guard(Path(self.policy.lock), self.namespace, self.policy.fallback)
            self._guard.check_installed(self.distribution, self._groups, self.schema_library)
            self.trace("lock", self.policy.lock)
        self.abi, self.schemas = open_schemas(self.namespace, self.schema_library, self.distribution, self._expected)
        self.trace("schemas", f"{len(self.schemas)} operators from {self.schema_library}, ABI {self.abi}")

    # ---- backends ----------------------------------------------------------------------------------------------------

    def discover(self) -> None:
        """Find the installed backends, apply the policy and ask each plugin what it claims. Opens no library.

        While the import of a plugin is what led here, none is asked: the choice must not depend on who is imported
        first. :meth:`load_pending` goes on.
        """
        with self._lock:
            if not self._has_searched:
                self._has_searched = True
                self._find()
            importing = [plugin.name for plugin in self._waiting if plugin.is_being_imported]
            if importing:
                self.trace("defer", f"the import of {', '.join(importing)} led here")
                self._was_deferred = True
                return
            waiting, self._waiting = self._waiting, []
            self._unsettled += [claim for plugin in waiting if (claim := self._read(plugin))]

    def load_backends(self) -> None:
        """Discover the installed backends and load the winners. A plugin's failure is recorded, not raised.

        Raises:
            RegistryError: only with ``<PREFIX>_STRICT=1``, naming the first plugin that failed.
            LockError: other backends would win than the lock file says.
        """
        with self._lock:
            self.discover()
            if self._waiting:
                return
            claims, self._unsettled = self._unsettled, []
            self._settle(claims)
            self._ledger.report()

    def load_pending(self) -> bool:
        """Load the backends now if a plugin's own import got in the way before and is complete.

        Returns:
            Whether what found no kernel before should try again.

        Raises:
            RegistryError: as :meth:`load_backends`.
        """
        if not self._was_deferred:
            return False
        with self._lock:
            was_waiting, has_tried = bool(self._waiting), getattr(self._thread, "has_tried", False)
            if was_waiting:
                self.load_backends()
            if self._waiting:
                return False
            # Another thread may have loaded them between this thread's call and its turn here: once, it tries again.
            self._thread.has_tried = True
            return was_waiting or not has_tried

    def backends(self) -> dict[str, BackendStatus]:
        """Every installed backend by name, in alphabetical order."""
        self.load_pending()
        return dict(sorted(self._ledger.statuses.items()))

    def runtimes(self) -> dict[str, BackendStatus]:
        """Installed kernels for runtimes that are not PyTorch's dispatcher, by name. Looks anew; opens no library."""
        from .runtimes import find_runtimes

        statuses, findings = find_runtimes(self._groups[1])
        self._ledger.findings += [finding for finding in findings if finding not in self._ledger.findings]
        return statuses

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with policy files, environment variables and the metadata of distributions."""
        return tuple(self._ledger.findings)

    def require(self, *names: str) -> None:
        """Check that backends are loaded.

        Raises:
            BackendUnavailableError: naming the first that is not, why, and what to do.
        """
        statuses = self.backends()
        for name in names:
            status = statuses.get(name)
            if status is None:
                raise BackendUnavailableError("OPWHEEL-E002", self._not_installed(name))
            if status.state is not State.LOADED:
                raise BackendUnavailableError("OPWHEEL-E002", describe(status)) from status.exception

    def load(self, name: str) -> BackendStatus:
        """Load a backend that is not loaded yet, whatever policy or ``<PREFIX>_AUTOLOAD=0`` say.

        Raises:
            BackendUnavailableError: it is not installed, cannot be loaded, or another backend owns its dispatch key.
            LockError: the lock file does not have it among the winners.
        """
        with self._lock:
            status = self.backends().get(name)
            # One that could not be removed from the process is not opened once more: that would do nothing.
            is_open = name in self._settlement.owners.values()
            if status is not None and name in self._plugins and not is_open:
                claim = self._claims.get(name) or self._read(self._plugins[name])
                self._settle([claim] if claim else [])
            self.require(name)
            return self._ledger.statuses[name]

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        """The error of a call that found no kernel, caused by what broke the backend that should have had one."""
        what = f"{self.namespace}::{operator} has no kernel for {device_type} tensors"
        if layout != "strided":
            return NoKernelError("OPWHEEL-E001", f"{what} of layout {layout}; convert them with .to_dense()")
        status = self._telling_status(device_type)
        known = [known.name for known in self.policy.backends.values() if known.device == device_type]
        if status is None:
            reason = self._not_installed(known[0]) if known else "no installed backend is for this device"
        elif not status.device_type:
            reason = f"no backend is known to be for this device, but {describe(status)}"
        elif status.state is not State.LOADED:
            reason = describe(status)
        elif operator not in status.operators:
            reason = f"the backend {status.name!r} ({status.distribution} {status.version}) does not cover it"
        else:
            reason = "only plain dense tensors are supported, not quantised, nested or other special ones"
        hint = f"`{self.namespace} doctor` explains more, {self.prefix}_FALLBACK=reference computes with ATen instead"
        error = NoKernelError("OPWHEEL-E001", f"{what}: {reason}; {hint}")
        error.__cause__ = status.exception if status else None
        return error

    def explain(self, operator: str, device_type: str) -> Choice:
        """Which backend serves the operator on tensors of that device type, and what became of the others."""
        return explain(self.backends().values(), operator, device_type)

    def digest(self) -> str:
        """A fingerprint of the choice of backends: equal wherever the same plugins and the same policy are."""
        self.load_pending()
        return digest(self._claims.values(), self.policy)

    def snapshot(self) -> Snapshot:
        """What a lock file would say of this process.

        Raises:
            LockError: something is wrong that must not be locked.
        """
        from .lock import files_of, foreign_files, problems_of, snapshot, take_inventory

        failed = [describe(status) for status in self.backends().values() if status.is_failure]
        inventory = take_inventory(self.distribution, self._groups)
        winners = [claim for name, claim in self._claims.items() if name in self._settlement.owners.values()]
        files = [(self.distribution, self.schema_library), *files_of(winners)]
        problems = [*failed, *problems_of(inventory), *foreign_files(inventory, files)]
        if problems:
            raise LockError("OPWHEEL-E072", f"this installation cannot be locked: {'; '.join(problems)}")
        return snapshot(inventory, self.policy.fallback, self._settlement.owners)

    # ---- steps of loading --------------------------------------------------------------------------------------------

    def _find(self) -> None:
        found, findings = find_plugins(self.entry_point_group)
        self._ledger.findings += findings
        self.trace("discover", f"{len(found)} entry points in group {self.entry_point_group}")
        for plugin in sorted(
            found, key=lambda p: (p.name, p.distribution not in self.policy.first_party, p.distribution)
        ):
            first = self._plugins.setdefault(plugin.name, plugin)
            if first is not plugin:
                self._ledger.record(
                    plugin,
                    State.SHADOWED,
                    code="OPWHEEL-E023",
                    name=f"{plugin.name}@{plugin.distribution}",
                    reason=f"{first.distribution} offers a backend of the same name",
                    fix=f"pip uninstall {first.distribution}, or pip uninstall {plugin.distribution}",
                )
        for plugin in self._plugins.values():
            rejection = self.policy.rejects(plugin.name, self.namespace)
            if rejection is None:
                self._waiting.append(plugin)
            else:
                reason, fix = rejection
                self._ledger.record(plugin, State.DISABLED, code="OPWHEEL-E060", reason=reason, fix=fix)
        self._ledger.findings += self.policy.unknown_names(set(self._plugins), self.prefix, self._is_dispatch_key)

    def _is_dispatch_key(self, key: str) -> bool:
        return is_dispatch_key(self.namespace, self.operators[0], key)

    @property
    def _groups(self) -> tuple[str, str]:
        return self.entry_point_group, f"{self.namespace}.runtimes"

    def _settle(self, claims: list[Claim]) -> None:
        if self._guard is not None:
            self._guard.check_winners(claims, self._settlement.forecast(claims))
        self._settlement.settle(claims, self.operators)
        if self._guard is not None:
            self._guard.check_winners(claims, self._settlement.owners)

    def _read(self, plugin: FoundPlugin) -> Claim | None:
        """What the plugin says of itself, if it can be taken at its word."""
        try:
            backend = read_backend(plugin)
        except PluginError as error:
            self._ledger.fail(plugin, None, error, code=error.code)
            return None
        try:
            self._check_names(backend)
            check_compatible(backend, self.abi)
        except LoadError as error:
            if error.code == "OPWHEEL-E022":
                self._ledger.fail(plugin, backend, error, code=error.code)
            else:
                self._ledger.record(
                    plugin, State.INCOMPATIBLE, backend=backend, code=error.code, reason=str(error), fix=error.fix
                )
            return None
        operators = frozenset(self.operators if backend.operators is None else backend.operators)
        self.trace("plugin", f"{plugin.name}: {backend.dispatch_key}, {len(operators)} operators")
        claim = self._claims[plugin.name] = Claim(plugin, backend, operators)
        return claim

    def _check_names(self, backend: Backend) -> None:
        unknown = sorted(set(backend.operators or ()) - set(self.operators))
        if unknown:
            raise LoadError("OPWHEEL-E022", f"it claims operators that do not exist: {', '.join(unknown)}")
        if not self._is_dispatch_key(backend.dispatch_key):
            raise LoadError("OPWHEEL-E022", f"PyTorch knows no dispatch key {backend.dispatch_key!r}")

    def _telling_status(self, device_type: str) -> BackendStatus | None:
        """The backend for the device that a user should hear about; else one that did not get to name its device."""
        statuses = [status for status in self.backends().values() if status.device_type in (device_type, "")]
        return min(statuses, key=lambda s: (not s.device_type, _TELLING.index(s.state)), default=None)

    def _not_installed(self, name: str) -> str:
        if name in self._plugins:
            return (
                f"the backend {name!r} is not loaded yet: the import of a plugin that led to this one is not complete"
            )
        known = self.policy.backends.get(name)
        if known is None:
            names = ", ".join(sorted(self._ledger.statuses)) or "none"
            return f"no backend {name!r} is installed; installed are: {names}"
        return f"the backend {name!r} is not installed: {known.hint or 'pip install ' + known.distribution}"
