"""An operator library: a namespace of operators whose kernels come from backend plugins."""

from __future__ import annotations

import ctypes
import os
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from .. import _torch_private as private
from . import discovery, explanation, loading
from .backend import Backend
from .discovery import FoundPlugin, PluginError
from .errors import BackendUnavailableError, NoKernelError, RegistryError
from .explanation import Choice
from .loading import Loaded, LoadError
from .policy import Policy, read_policy
from .resolution import Claim, deciding_rule, precedence
from .status import BackendStatus, Finding, State, describe_exception
from .trace import Tracer


class OperatorLibrary:
    """Loads a library's schemas and backends, and knows what became of each backend.

    Args:
        namespace: of the operators in the dispatcher, ``torch.ops.<namespace>``. In upper case it is the prefix of the
            environment variables.
        schema_library: the shared library that defines the operators. It exports ``<namespace>_abi_version`` and
            ``<namespace>_schemas``.
        entry_point_group: where backends register themselves.
        plugins_file: the shipped plugins.toml.
        distribution: the wheel this library comes in, for messages.
    """

    def __init__(
        self, namespace: str, *, schema_library: Path, entry_point_group: str, plugins_file: Path, distribution: str
    ) -> None:
        self.namespace = namespace
        self.distribution = distribution
        self.schema_library = schema_library
        self.entry_point_group = entry_point_group
        self.prefix = namespace.upper()
        self.abi = 0
        self.schemas: tuple[str, ...] = ()
        self.policy: Policy = read_policy(plugins_file, os.environ, self.prefix)
        self.trace = Tracer(namespace, self.policy.trace)
        self._manager = discovery.new_plugin_manager()
        self._plugins: dict[str, FoundPlugin] = {}
        self._claims: dict[str, Claim] = {}
        self._statuses: dict[str, BackendStatus] = {}
        self._loaded: dict[str, Loaded] = {}
        self._pending: list[FoundPlugin] = []
        self._findings: list[Finding] = list(self.policy.findings)
        self._lock = threading.RLock()

    # ---- schemas -----------------------------------------------------------------------------------------------------

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all schemas, with the overload: ``"muladd"``, ``"muladd.out"``."""
        return tuple(schema.partition("(")[0] for schema in self.schemas)

    def load_schemas(self) -> None:
        """Open the schema library and read the catalogue back from it.

        Raises:
            ImportError: the library is missing, or something else in this process has defined the namespace already.
        """
        path = str(self.schema_library)
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        except OSError:
            self._check_namespace_is_free()
            try:
                library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            except OSError as error:
                raise ImportError(
                    f"{self.distribution} cannot open its schema library {path}: {error}; "
                    f"pip install --force-reinstall {self.distribution}"
                ) from error
        self.abi = int(getattr(library, f"{self.namespace}_abi_version")())
        texts = getattr(library, f"{self.namespace}_schemas")
        texts.restype = ctypes.POINTER(ctypes.c_char_p)
        self.schemas = tuple(_until_null(texts()))
        self.trace("schemas", f"{len(self.schemas)} operators from {path}, ABI {self.abi}")

    def _check_namespace_is_free(self) -> None:
        # A second definition of the namespace would end the process inside of PyTorch's static initialisers.
        taken = [name for name in private.operators_of(self.namespace) if private.schema_of(name) is not None]
        if taken:
            raise ImportError(
                f"the operator namespace {self.namespace!r} is already defined in this process ({taken[0]}), by "
                f"another copy of {self.distribution} or another package; import only one of them"
            )

    # ---- backends ----------------------------------------------------------------------------------------------------

    def load_backends(self) -> None:
        """Discover the installed backends and load the winners. A plugin's failure is recorded, not raised.

        Raises:
            RegistryError: only with ``<PREFIX>_STRICT=1``, naming the first plugin that failed.
        """
        with self._lock:
            self._discover()
            claims = [claim for plugin in self._plugins.values() if (claim := self._consider(plugin))]
            self._settle(claims)
            self._check_names()
            self._report()

    def load_pending(self) -> bool:
        """Load the plugins whose own import led to this library's: by now they are complete. Whether there were any."""
        if not self._pending:
            return False
        with self._lock:
            ready = [plugin for plugin in self._pending if not plugin.is_being_imported]
            self._pending = [plugin for plugin in self._pending if plugin.is_being_imported]
            self._settle([claim for plugin in ready if (claim := self._read(plugin))])
        return bool(ready)

    def backends(self) -> dict[str, BackendStatus]:
        """Every installed backend by name, in alphabetical order."""
        self.load_pending()
        return dict(sorted(self._statuses.items()))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with policy files and environment variables."""
        return tuple(self._findings)

    def require(self, *names: str) -> None:
        """Check that backends are loaded.

        Raises:
            BackendUnavailableError: naming the first that is not, why, and what to do.
        """
        statuses = self.backends()
        for name in names:
            status = statuses.get(name)
            if status is None:
                raise BackendUnavailableError("MULADD-E002", self._not_installed(name))
            if status.state is not State.LOADED:
                raise BackendUnavailableError("MULADD-E002", self._describe(status)) from status.exception

    def load(self, name: str) -> BackendStatus:
        """Load a backend that is not loaded yet, whatever policy or ``<PREFIX>_AUTOLOAD=0`` say.

        Raises:
            BackendUnavailableError: it is not installed, cannot be loaded, or another backend owns its dispatch key.
        """
        with self._lock:
            status = self.backends().get(name)
            if status is not None and status.state is not State.LOADED and name in self._plugins:
                claim = self._claims.get(name) or self._read(self._plugins[name])
                if claim is not None:
                    self._settle([claim])
            self.require(name)
            return self._statuses[name]

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        """The error of a call that found no kernel, caused by what broke the backend that should have had one."""
        what = f"{self.namespace}::{operator} has no kernel for {device_type} tensors"
        if layout != "strided":
            return NoKernelError("MULADD-E001", f"{what} of layout {layout}; convert them with .to_dense()")
        hint = f"; `{self.namespace} doctor` explains more, {self.prefix}_FALLBACK=reference computes with ATen instead"
        for status in self.backends().values():
            if status.device_type != device_type:
                continue
            if status.state is State.LOADED and operator not in status.operators:
                reason = f"the backend {status.name!r} ({status.distribution} {status.version}) does not cover it"
            elif status.state is State.LOADED:
                reason = "only plain dense tensors are supported, not quantised, nested or other special ones"
            else:
                reason = self._describe(status)
            error = NoKernelError("MULADD-E001", f"{what}: {reason}{hint}")
            error.__cause__ = status.exception
            return error
        known = [known for known in self.policy.backends.values() if known.device == device_type]
        reason = self._not_installed(known[0].name) if known else "no installed backend is for this device"
        return NoKernelError("MULADD-E001", f"{what}: {reason}{hint}")

    def explain(self, operator: str, device_type: str) -> Choice:
        """Which backend serves the operator on tensors of that device type, and what became of the others."""
        return explanation.explain(self.backends().values(), operator, device_type)

    def digest(self) -> str:
        """A fingerprint of the choice of backends: equal wherever the same plugins and the same policy are."""
        self.load_pending()
        return explanation.digest(self._claims.values(), self.policy)

    # ---- steps of loading --------------------------------------------------------------------------------------------

    def _discover(self) -> None:
        found = sorted(
            discovery.find_plugins(self.entry_point_group),
            key=lambda plugin: (plugin.name, plugin.distribution not in self.policy.first_party, plugin.distribution),
        )
        self.trace("discover", f"{len(found)} entry points in group {self.entry_point_group}")
        for plugin in found:
            if plugin.name in self._plugins:
                winner = self._plugins[plugin.name].distribution
                self._record(
                    plugin,
                    State.SHADOWED,
                    code="MULADD-E023",
                    name=f"{plugin.name}@{plugin.distribution}",
                    reason=f"{winner} offers a backend of the same name",
                    fix=f"pip uninstall {winner}, or pip uninstall {plugin.distribution}",
                )
            else:
                self._plugins[plugin.name] = plugin

    def _consider(self, plugin: FoundPlugin) -> Claim | None:
        """Policy, then what the plugin says of itself. Nothing is opened."""
        if not self.policy.autoload:
            reason = (f"{self.prefix}_AUTOLOAD=0", f"call {self.namespace}.load({plugin.name!r})")
            self._reject(plugin, State.DISABLED, "MULADD-E060", *reason)
            return None
        rejection = self.policy.rejects(plugin.name, self.prefix)
        if rejection is not None:
            self._reject(plugin, State.DISABLED, "MULADD-E060", *rejection)
            return None
        if plugin.is_being_imported:
            self.trace("defer", f"{plugin.name}: its own import led here")
            self._pending.append(plugin)
            return None
        return self._read(plugin)

    def _read(self, plugin: FoundPlugin) -> Claim | None:
        try:
            backend = discovery.read_backend(plugin, self._manager)
            unknown = sorted(set(backend.operators or ()) - set(self.operators))
            if unknown:
                raise PluginError("MULADD-E022", f"it claims operators that do not exist: {', '.join(unknown)}")
        except PluginError as error:
            self._fail(plugin, None, error, error.code, f"reinstall or uninstall {plugin.distribution}")
            return None
        try:
            loading.check_compatible(backend, self.abi)
        except LoadError as error:
            state = State.BROKEN if error.code == "MULADD-E022" else State.INCOMPATIBLE
            self._reject(plugin, state, error.code, str(error), error.fix, backend)
            return None
        operators = frozenset(self.operators if backend.operators is None else backend.operators)
        self.trace("plugin", f"{plugin.name}: {backend.dispatch_key}, {len(operators)} operators")
        claim = self._claims[plugin.name] = Claim(plugin, backend, operators)
        return claim

    def _settle(self, claims: list[Claim]) -> None:
        """Probe and load in order of precedence; whoever comes later and wants the same operator is shadowed."""
        for claim in sorted(claims, key=lambda claim: (claim.backend.dispatch_key, *precedence(claim, self.policy))):
            owner = self._owner_against(claim)
            if owner is not None:
                rule = deciding_rule(owner, claim, self.policy)
                key = claim.backend.dispatch_key
                self._reject(
                    claim.plugin,
                    State.SHADOWED,
                    "MULADD-E024",
                    f"{owner.backend.name!r} owns {key}: {rule}",
                    f"to choose it, set prefer = {{ {key} = [{claim.backend.name!r}] }} under [policy] in plugins.toml",
                    claim.backend,
                )
                continue
            try:
                probe = loading.run_probe(claim.backend)
                if probe.ok:
                    self._load(claim)
                else:
                    self.trace("probe", f"{claim.backend.name}: no, {probe.reason}")
                    self._reject(claim.plugin, State.UNSUPPORTED, "MULADD-E040", probe.reason, probe.fix, claim.backend)
            except LoadError as error:
                self._fail(claim.plugin, claim.backend, error, error.code, error.fix)

    def _owner_against(self, claim: Claim) -> Claim | None:
        owners = (self._claims[name] for name in self._loaded if name != claim.backend.name)
        return next((owner for owner in owners if owner.conflicts_with(claim)), None)

    def _load(self, claim: Claim) -> None:
        backend, key = claim.backend, claim.backend.dispatch_key
        keys = {key, *(other.backend.dispatch_key for other in self._claims.values())}
        keys.update(known.dispatch_key for known in self.policy.backends.values())
        before = loading.registered_kernels(self.namespace, self.operators, keys)
        strangers = set(private.operators_of(self.namespace))
        loaded = Loaded()
        start = time.perf_counter()
        try:
            loaded.open(backend, self.namespace)
            load_ms = (time.perf_counter() - start) * 1e3
            added = loading.registered_kernels(self.namespace, self.operators, keys) - before
            unknown = set(private.operators_of(self.namespace)) - strangers
            self._check_added(claim, added, unknown)
        except LoadError:
            loaded.undo()
            raise
        self._loaded[backend.name] = loaded
        covered = {operator for operator, _ in added}
        missing = tuple(sorted(claim.operators - covered))
        reason = f"no kernel for {', '.join(missing)}" if missing else ""
        self._record(
            claim.plugin,
            State.LOADED,
            backend=backend,
            code="MULADD-E053" if missing else "",
            reason=reason,
            fix=f"pip install --upgrade {claim.plugin.distribution}" if missing else "",
            operators=tuple(sorted(covered)),
            missing=missing,
            load_ms=load_ms,
        )
        self.trace("load", f"{backend.name}: {len(covered)} kernels at {key} in {load_ms:.2f} ms")

    def _check_added(self, claim: Claim, added: set[tuple[str, str]], unknown: set[str]) -> None:
        key = claim.backend.dispatch_key
        unclaimed = sorted(f"{op} at {k}" for op, k in added if k != key or op not in claim.operators)
        unclaimed += sorted(f"{name} (not in the catalogue)" for name in unknown)
        if unclaimed:
            raise LoadError("MULADD-E054", f"it registered what it does not claim: {', '.join(unclaimed)}")
        if not added:
            raise LoadError("MULADD-E051", f"it registered no kernel at {key}")

    # ---- records and messages ----------------------------------------------------------------------------------------

    def _record(
        self, plugin: FoundPlugin, state: State, *, backend: Backend | None = None, name: str = "", **details: object
    ) -> None:
        known = self.policy.backends.get(plugin.name)
        status = BackendStatus(
            name=name or plugin.name,
            state=state,
            distribution=plugin.distribution,
            version=plugin.version,
            dispatch_key=backend.dispatch_key if backend else known.dispatch_key if known else "",
            device_type=backend.device_type if backend else known.device if known else "",
            library=backend.libraries[0] if backend and backend.libraries else None,
        )
        self._statuses[status.name] = replace(status, **details)  # type: ignore[arg-type]

    def _reject(
        self, plugin: FoundPlugin, state: State, code: str, reason: str, fix: str, backend: Backend | None = None
    ) -> None:
        self.trace(str(state), f"{plugin.name}: {reason}")
        self._record(plugin, state, backend=backend, code=code, reason=reason, fix=fix)

    def _fail(self, plugin: FoundPlugin, backend: Backend | None, error: Exception, code: str, fix: str) -> None:
        cause = error.__cause__
        reason = str(error) if cause is None else f"{error}: {describe_exception(cause)}"
        self.trace("broken", f"{plugin.name}: {reason}")
        self._record(
            plugin,
            State.BROKEN,
            backend=backend,
            code=code,
            reason=reason,
            fix=fix or f"reinstall {plugin.distribution}, or uninstall it",
            exception=cause or error,
        )

    def _check_names(self) -> None:
        known = set(self._plugins) | set(self.policy.backends)
        for source, names in ((f"{self.prefix}_BACKENDS", self.policy.allow), ("disable", self.policy.disable)):
            for name in sorted((names or frozenset()) - known):
                choices = ", ".join(sorted(known))
                text = f"{source} names {name!r}, which is no backend; known are {choices} (MULADD-E011)"
                self._findings.append(Finding("MULADD-E011", text))

    def _report(self) -> None:
        """One warning for each thing that went wrong; an error with STRICT. Hardware that is not there is not wrong."""
        bad = [s for s in self._statuses.values() if s.state in (State.BROKEN, State.INCOMPATIBLE) or s.missing]
        problems = [(finding.message, None) for finding in self._findings]
        problems += [(self._describe(status), status) for status in bad]  # type: ignore[misc]
        for message, status in problems:
            if self.policy.strict:
                code = status.code if status else self._findings[0].code
                raise RegistryError(code, message) from (status.exception if status else None)
            warnings.warn(f"{self.namespace}: {message}", RuntimeWarning, stacklevel=4)

    def _describe(self, status: BackendStatus) -> str:
        origin = f"{status.distribution} {status.version}"
        text = f"the backend {status.name!r} ({origin}) is {status.state}: {status.reason}"
        if status.code:
            text += f" [{status.code}]"
        return f"{text}; to fix it: {status.fix}" if status.fix else text

    def _not_installed(self, name: str) -> str:
        known = self.policy.backends.get(name)
        if known is None:
            names = ", ".join(sorted(self._statuses)) or "none"
            return f"no backend {name!r} is installed; installed are: {names}"
        return f"the backend {name!r} is not installed: {known.hint or 'pip install ' + known.distribution}"


def _until_null(texts: Mapping[int, bytes | None]) -> list[str]:
    result: list[str] = []
    while (text := texts[len(result)]) is not None:
        result.append(text.decode())
    return result
