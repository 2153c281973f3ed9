"""An operator library: a namespace of operators whose kernels come from backend plugins."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._torch.private import dispatch_key_of, why_no_device
from .backend import Backend
from .discovery import FoundPlugin, PluginError, find_plugins, read_plugin
from .dispatcher import EVERY, Pair, is_dispatch_key, listed
from .dispatcher import describe as describe_pairs
from .errors import BackendUnavailableError, LockError, NoKernelError
from .isolation import Isolation
from .loader import Loader
from .loading import LoadError, check_compatible
from .policy import HUGE_PAGES, RESULT_CACHE, Policy, read_policy
from .resolution import Claim
from .schemas import open_schemas
from .status import BackendStatus, Finding, State
from .statuses import Statuses, describe
from .trace import Tracer
from .variables import unknown_variables

if TYPE_CHECKING:
    from .explanation import Choice
    from .lock import Guard, Snapshot
    from .table import Backends

# Of several backends for a device, the error of a failed call is about the one that is closest to working.
_CLOSEST_FIRST = (State.LOADED, State.BROKEN, State.INCOMPATIBLE, State.UNSUPPORTED, State.DISABLED, State.SHADOWED)

# With one of these errors a backend is not broken, but made for other versions than those in this process.
_INCOMPATIBLE = ("OPWHEEL-E030", "OPWHEEL-E031", "OPWHEEL-E032")


class StillImportingError(Exception):
    """A plugin cannot be asked for its backend, because its import is under way."""


class OperatorLibrary:
    """Loads a library's schemas and backends, and records the state of each backend.

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
        if not plugins_file.parent.is_dir():
            from .absence import how_to_bundle

            advice = how_to_bundle(namespace, distribution) or "unpack the archive, or install the wheel"
            raise ImportError(
                f"{distribution} cannot be imported from {plugins_file.parent}: the system opens shared libraries only "
                f"where they are files; {advice}"
            )
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
        self._statuses = Statuses(namespace, self.policy, self.trace)
        self._plugins: dict[str, FoundPlugin] = {}
        self._has_searched = False
        self._waiting: list[FoundPlugin] = []  # found, not read yet
        self._claims: dict[str, Claim] = {}
        self._unloaded: list[Claim] = []  # read, not loaded yet
        self._isolation = Isolation(namespace)
        self._loader = Loader(namespace, self.policy, self._statuses, self._isolation)
        self._lock = threading.RLock()
        # Plugins whose import was under way when they should have been asked, or whose device nobody had registered.
        self._deferred: set[str] = set()
        self._patience_ends = 0.0  # when imports by other threads are not waited for any more
        self._load_count = 0  # how often backends were loaded
        self._thread = threading.local()
        self._guard: Guard | None = None

    # ---- schemas -----------------------------------------------------------------------------------------------------

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all schemas, with the overload: ``"name"``, ``"name.out"``."""
        return tuple(schema.partition("(")[0] for schema in self.schemas)

    def load_schemas(self) -> None:
        """Open the schema library and read the schemas back from it.

        Raises:
            ImportError: the library is missing, or something else in this process has defined the namespace already.
            LockError: what is installed differs from the lock file, or there is no such file.
        """
        if self.policy.lock is not None:
            from .lock import Guard

            self._guard = Guard(self.policy.lock, self.namespace, self.policy.fallback)
            self._guard.check_installed(self.distribution, self._groups, self.schema_library)
            self.trace("lock", self.policy.lock)
        self.abi, self.schemas = open_schemas(self.namespace, self.schema_library, self.distribution, self._expected)
        self._isolation.clear(self.operators)
        self.trace("schemas", f"{len(self.schemas)} operators from {self.schema_library}, ABI {self.abi}")

    # ---- backends ----------------------------------------------------------------------------------------------------

    def discover(self) -> bool:
        """Find the installed backends, apply the policy and ask each plugin what it claims. Opens no library.

        While the import of a plugin is under way, none is asked: the choice must not depend on who is imported first.
        :meth:`load_pending` goes on. An import by another thread is not waited for without end.

        Returns:
            Whether all were asked that can be.
        """
        with self._lock:
            if not self._has_searched:
                self._has_searched = True
                self._find()
                self._isolation.start()
            importing = [plugin for plugin in self._waiting if plugin.is_being_imported]
            if importing and not self._is_overdue(importing):
                self._defer(importing)
                return False
            # First those whose import led here before: what was registered since then is their doing.
            unread = sorted(
                (p for p in self._waiting if p not in importing), key=lambda p: p.name not in self._deferred
            )
            try:
                while unread:
                    claim = self._read(unread[0])
                    self._unloaded += [claim] if claim else []
                    del unread[0]
            except StillImportingError:
                self._defer(unread[:1])
                return False
            finally:
                self._waiting = unread + importing  # for the next attempt, if something ends this one
            return True

    def load_backends(self) -> None:
        """Discover the installed backends and load the winners. A plugin's failure is recorded, not raised.

        What was loaded is undone before anything is raised: an import that fails can be repeated.

        Raises:
            RegistryError: only with ``<PREFIX>_STRICT=1``, naming the first plugin that failed.
            LockError: other backends would win than the lock file says.
            RuntimeWarning: only where warnings are errors, for the first plugin that failed.
        """
        with self._lock:
            try:
                self._load_found()
            except BaseException:
                self._loader.undo()
                raise

    def load_pending(self) -> bool:
        """Load the backends now that had to wait: for the import of a plugin, or for that of a package with a device.

        Returns:
            Whether backends were loaded since this thread last asked: a call that found no kernel is then made again.

        Raises:
            RegistryError: as :meth:`load_backends`.
        """
        if not self._deferred or not self._await_imports():
            return False
        with self._lock:
            if self._waiting or self._unloaded:
                self._load_found()
            elif arrived := self._loader.arrived():
                self._note_others()  # by now they have been accepted, and are not the doing of these
                self._load_claims(arrived)
                self._load_count += 1
                self._statuses.report()
            # Another thread may have loaded them between this thread's call and its turn here.
            seen, self._thread.seen = getattr(self._thread, "seen", 0), self._load_count
            return seen != self._load_count

    def backends(self) -> Backends:
        """Every installed backend by name, in alphabetical order: a dictionary that is shown as a table."""
        from .table import Backends  # an import of the library is to be quick

        self.load_pending()
        return Backends(sorted(self._statuses.by_name.items()))

    def runtimes(self) -> dict[str, BackendStatus]:
        """Installed kernels for runtimes that are not PyTorch's dispatcher, by name. Looks anew; opens no library."""
        from .runtimes import find_runtimes

        statuses, findings = find_runtimes(self._groups[1])
        self._statuses.findings += [finding for finding in findings if finding not in self._statuses.findings]
        return statuses

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with policy files, environment variables, the metadata of distributions and the dispatcher."""
        self._note_others()
        return tuple(self._statuses.findings)

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
            is_open = name in self._loader.owners.values()
            if status is not None and name in self._plugins and not is_open:
                self._note_others()
                claim = self._claims.get(name)
                with suppress(StillImportingError):
                    claim = claim or self._read(self._plugins[name])
                self._load_claims([claim] if claim else [])
            self.require(name)
            return self._statuses.by_name[name]

    def set_huge_pages(self, setting: str) -> None:
        """Change the policy's ``huge-pages`` in this process: whether large new results on a CPU ask for them.

        Args:
            setting: ``"advise"`` or ``"never"``.

        Raises:
            ValueError: it is neither.
        """
        self._change_policy("huge_pages", setting, HUGE_PAGES)

    def set_result_cache(self, setting: str) -> None:
        """Change the policy's ``result-cache`` in this process: whether the memory of large results on a CPU is kept.

        Args:
            setting: ``"keep"`` or ``"never"``.

        Raises:
            ValueError: it is neither.
        """
        self._change_policy("result_cache", setting, RESULT_CACHE)

    def _change_policy(self, key: str, setting: str, choices: tuple[str, ...]) -> None:
        changed: dict[str, Any] = {key: setting}
        if setting not in choices:
            raise ValueError(f"{key.replace('_', ' ')}: {setting!r} is neither {' nor '.join(map(repr, choices))}")
        with self._lock:
            self.policy = self.policy._replace(**changed)
            self._loader.set_policy(self.policy)

    def backend_at(self, operator: str, dispatch_key: str) -> str:
        """The loaded backend whose kernel is there, with its distribution; empty if there is none."""
        name = self._loader.owner((operator, dispatch_key))
        return f"the backend {name!r} ({self._statuses.by_name[name].distribution})" if name else ""

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        """The error of a call that found no kernel, caused by what broke the backend that should have had one."""
        what = f"{self.namespace}::{operator} has no kernel for {device_type} tensors"
        if layout != "strided":
            return NoKernelError("OPWHEEL-E001", f"{what} of layout {layout}; convert them with .to_dense()")
        blocked = self._isolation.error(operator, dispatch_key_of(device_type) or "")
        if blocked:
            return blocked
        status = self._closest_status(device_type)
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
        """Which backend serves the operator on tensors of that device type, and why the others do not."""
        from .explanation import explain

        blocked = {key: why for (name, key), why in self._isolation.blocked.items() if name == operator}
        return explain(self.backends().values(), operator, device_type, blocked)

    def digest(self) -> str:
        """A fingerprint of the choice of backends: equal wherever plugins and policy are the same."""
        from .explanation import digest

        self.load_pending()
        return digest(self._claims.values(), self.policy)

    def snapshot(self) -> Snapshot:
        """What a lock file would say of this process.

        Raises:
            LockError: something is wrong that must not be locked.
        """
        from .lock import files_of, foreign_files, snapshot, take_inventory

        failed = [describe(status) for status in self.backends().values() if status.is_failure]
        inventory = take_inventory(self.distribution, self._groups)
        winners = [claim for name, claim in self._claims.items() if name in self._loader.owners.values()]
        files = [(self.distribution, self.schema_library), *files_of(winners)]
        problems = [*failed, *inventory.problems, *foreign_files(inventory, files)]
        if problems:
            raise LockError("OPWHEEL-E072", f"this installation cannot be locked: {'; '.join(problems)}")
        return snapshot(inventory, self.policy.fallback, self._loader.owners)

    def compare(self, lock: str, *, winners: bool = True) -> list[Finding]:
        """How this process differs from a lock file, whether or not it was told to follow one.

        Without ``winners``, as far as one can say where no backend is loaded.

        Raises:
            LockError: the file cannot be used.
        """
        from .lock import Guard

        guard = Guard(lock, self.namespace, self.policy.fallback)
        differences = guard.compare_installed(self.distribution, self._groups, self.schema_library)
        if winners:
            self.load_pending()
            differences += guard.compare_winners(self._claims.values(), self._loader.owners)
        return guard.findings(differences)

    # ---- steps of loading --------------------------------------------------------------------------------------------

    def _find(self) -> None:
        found, findings = find_plugins(self.entry_point_group)
        self._statuses.findings += findings
        self.trace("discover", f"{len(found)} entry points in group {self.entry_point_group}")
        for plugin in sorted(
            found, key=lambda p: (p.name, p.distribution not in self.policy.first_party, p.distribution)
        ):
            first = self._plugins.setdefault(plugin.name, plugin)
            if first is not plugin:
                self._statuses.record(
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
                self._statuses.record(plugin, State.DISABLED, code="OPWHEEL-E060", reason=reason, fix=fix)
        self._statuses.findings += self.policy.unknown_names(set(self._plugins), self.prefix, self._is_dispatch_key)
        backends = {*self._plugins, *self.policy.backends, *self.policy.runtimes}
        self._statuses.findings += unknown_variables(os.environ, self.namespace, backends)

    def _load_found(self) -> None:
        if not self.discover():
            return
        claims, self._unloaded = self._unloaded, []
        try:
            self._load_claims(claims)
        except BaseException:
            self._unloaded = [claim for claim in claims if claim.backend.name not in self._statuses.by_name]
            raise
        self._load_count += bool(claims)
        if self._guard is None:  # what is locked does not change later
            self._deferred.update(self._loader.without_device)
        self._note_earlier()
        self._statuses.report()

    def _defer(self, importing: list[FoundPlugin]) -> None:
        names = [plugin.name for plugin in importing]
        self.trace("defer", f"{', '.join(names)} is being imported")
        if not self._deferred:
            self._patience_ends = time.monotonic() + self.policy.probe_timeout_s
        self._deferred.update(names)

    def _is_overdue(self, importing: list[FoundPlugin]) -> bool:
        """Whether other threads have been busy with these imports for so long that one goes on without them."""
        is_late = bool(self._deferred) and time.monotonic() > self._patience_ends
        return is_late and not any(plugin.is_imported_by_this_thread for plugin in importing)

    def _await_imports(self) -> bool:
        """Wait for the plugins that other threads are importing. False if this thread is importing one."""
        while importing := [plugin for plugin in self._waiting if plugin.is_being_imported]:
            if any(plugin.is_imported_by_this_thread for plugin in importing):
                return False
            if self._is_overdue(importing):
                break
            time.sleep(0.001)
        return True

    def _note_earlier(self) -> None:
        """Tell of kernels that were there before this library's own; block those that are still the ones to run."""
        earlier, self._isolation.earlier = self._isolation.earlier, {}
        if not earlier:
            return
        left = [
            pair
            for pair, place in earlier.items()
            if self._isolation.is_active(pair, place) and not self._loader.owner(pair)
        ]
        problem = f"{self._authors(earlier)} registered {listed(earlier)} before {self.namespace} was imported"
        fix = f"leave that to the libraries and register functions of backends, which {self.namespace} loads"
        self._isolation.block(left, f"{problem}, and it cannot be removed; to fix it: {fix}")
        consequence = f"; calls that reach {describe_pairs(left)} raise" if left else "; that has no effect"
        self._statuses.findings.append(Finding("OPWHEEL-E054", problem + consequence, fix))

    def _note_others(self) -> None:
        """Tell of kernels that were registered after the backends were loaded."""
        with self._lock:
            if self._waiting or not self._has_searched:
                return
            added = {pair: place for pair, place in self._isolation.changes().items() if pair[0] != EVERY}
            self._isolation.go_on()
        if added:
            problem = (
                f"{self._authors(added)} registered {listed(added)} after the backends of {self.namespace} were loaded"
            )
            fix = f"leave that to the libraries and register functions of backends, which {self.namespace} loads"
            self._statuses.findings.append(Finding("OPWHEEL-E054", problem, fix))

    def _authors(self, added: Mapping[Pair, str]) -> str:
        """The plugins in whose files something was registered, as far as PyTorch knows the source lines."""
        places = tuple(added.values())
        names = [
            repr(name)
            for name, plugin in self._plugins.items()
            if plugin.files and any(place.startswith(plugin.files) for place in places)
        ]
        return " and ".join(names) or "somebody"

    def _is_dispatch_key(self, key: str) -> bool:
        return is_dispatch_key(self.namespace, self.operators[0], key)

    @property
    def _groups(self) -> tuple[str, str]:
        return self.entry_point_group, f"{self.namespace}.runtimes"

    def _load_claims(self, claims: list[Claim]) -> None:
        if self._guard is not None:
            self._guard.check_winners(claims, self._loader.forecast(claims))
        self._loader.load(claims)
        if self._guard is not None:
            self._guard.check_winners(claims, self._loader.owners)

    def _read(self, plugin: FoundPlugin) -> Claim | None:
        """Import a plugin and check what it says of itself. None if it is incompatible or broken, which is recorded.

        Raises:
            StillImportingError: another thread is in the middle of importing it, and waits for an import of this one.
        """
        backend: Backend | None = None
        try:
            backend = read_plugin(plugin, "opwheel_backend", Backend)
            self._loader.check_untouched("its import or hook", backend)
            self._check_names(backend)
            check_compatible(backend, self.abi, self.schemas)
        except (PluginError, LoadError) as error:
            if plugin.is_being_imported:
                raise StillImportingError from error
            if error.code in _INCOMPATIBLE:
                self._statuses.record(
                    plugin, State.INCOMPATIBLE, backend=backend, code=error.code, reason=str(error), fix=error.fix
                )
            else:
                self._loader.expel(plugin, error, backend)
            return None
        operators = frozenset(self.operators if backend.operators is None else backend.operators)
        self.trace("plugin", f"{plugin.name}: {backend.dispatch_key}, {len(operators)} operators")
        claim = self._claims[plugin.name] = Claim(plugin, backend, operators)
        return claim

    def _check_names(self, backend: Backend) -> None:
        unknown = sorted(set(backend.operators or ()) - set(self.operators))
        if unknown:
            raise LoadError(
                "OPWHEEL-E022",
                f"it claims operators that do not exist: {', '.join(unknown)}",
                f"name in operators= those of `{self.namespace} explain`, such as operators=[{self.operators[0]!r}]",
            )
        self._check_key(backend.dispatch_key, backend.device_type)

    def _check_key(self, key: str, device: str) -> None:
        # Whether a package has registered the device is seen when the backend is loaded: its probe may import it.
        absent = why_no_device(device)
        expected = "PrivateUse1" if absent else dispatch_key_of(device)
        if key == expected and key != "Meta":
            return
        fix = f'write dispatch_key="{expected}" for device_type="{device}"'
        other = 'write dispatch_key="CPU" and device_type="cpu", or those of another device'
        if not self._is_dispatch_key(key):
            reason = f"PyTorch knows no dispatch key {key!r}"
        elif absent:
            reason = f"it claims {key!r}, but {absent}"
            fix = f'write the device_type of {key!r} tensors, or dispatch_key="PrivateUse1" for a device of a package'
        elif expected == key:
            reason, fix = f"it claims 'Meta', where {self.distribution} computes shapes", other
        elif expected is None:
            reason, fix = f"PyTorch has no dispatch key for {device!r} tensors", other
        else:
            reason = f"it claims {key!r}, but kernels for {device!r} tensors are at {expected!r}"
        raise LoadError("OPWHEEL-E022", reason, fix)

    def _closest_status(self, device_type: str) -> BackendStatus | None:
        """Of the backends for the device, the one closest to working; else one that did not get to name its device."""
        statuses = [status for status in self.backends().values() if status.device_type in (device_type, "")]
        return min(statuses, key=lambda s: (not s.device_type, _CLOSEST_FIRST.index(s.state)), default=None)

    def _not_installed(self, name: str) -> str:
        if name in self._plugins:
            return (
                f"the backend {name!r} is not loaded yet: the import of a plugin that led to this one is not complete"
            )
        known = self.policy.backends.get(name)
        if known is None:
            names = ", ".join(sorted(self._statuses.by_name)) or "none"
            return f"no backend {name!r} is installed; installed are: {names}"
        from .absence import find_absence  # most programs have all that they ask for

        hint = known.hint or f"pip install {known.distribution}"
        return f"the backend {name!r} {find_absence(known.distribution, hint)}"
