"""Finds the plugins of an operator library, and asks those that may load what they claim."""

from __future__ import annotations

import os
import time

from .backend import Backend
from .claims import check_claim
from .discovery import FoundPlugin, PluginError, find_plugins, read_plugin
from .dispatcher import is_dispatch_key
from .isolation import Isolation
from .loader import Loader
from .loading import LoadError, check_compatible
from .policy import Policy
from .resolution import Claim
from .schemas import Core
from .status import State
from .statuses import Statuses
from .trace import Tracer
from .variables import unknown_variables

# With one of these errors a backend is not broken, but made for other versions than those in this process.
_INCOMPATIBLE = ("OPWHEEL-E030", "OPWHEEL-E031", "OPWHEEL-E032", "OPWHEEL-E034")


class StillImportingError(Exception):
    """A plugin cannot be asked for its backend, because its import is under way."""

    code = None  # caught here: no caller sees it


class Search:
    """The plugins of one library: from the metadata of installed distributions to claims.

    ``plugins`` has those that were found by name, ``claims`` what they claim as far as they were asked, ``unloaded``
    the claims that nobody has tried to load yet. ``deferred`` has the names of plugins whose import was under way when
    they should have been asked, or whose device nobody had registered.
    """

    def __init__(
        self, group: str, policy: Policy, statuses: Statuses, isolation: Isolation, loader: Loader, trace: Tracer
    ) -> None:
        self.plugins: dict[str, FoundPlugin] = {}
        self.claims: dict[str, Claim] = {}
        self.unloaded: list[Claim] = []
        self.deferred: set[str] = set()
        self._group = group
        self._policy = policy
        self._statuses = statuses
        self._isolation = isolation
        self._loader = loader
        self._trace = trace
        self._has_begun = False
        self._waiting: list[FoundPlugin] = []  # found, not read yet
        self._patience_ends = 0.0  # when imports by other threads are not waited for any more

    @property
    def is_waiting(self) -> bool:
        """Whether plugins were found that have not been asked yet."""
        return bool(self._waiting)

    @property
    def is_complete(self) -> bool:
        """Whether all plugins were found, and asked as far as they can be."""
        return self._has_begun and not self._waiting

    def discover(self, core: Core) -> bool:
        """Find the plugins, apply the policy, and ask each that may load. Opens no library.

        Returns:
            Whether all were asked that can be: none is while the import of one is under way.
        """
        if not self._has_begun:
            self._has_begun = True
            self._find(core)
            self._isolation.start()
        importing = [plugin for plugin in self._waiting if plugin.is_being_imported]
        if importing and not self._is_overdue(importing):
            self._defer(importing)
            return False
        # First those whose import led here before: what was registered since then is their doing.
        unread = sorted((p for p in self._waiting if p not in importing), key=lambda p: p.name not in self.deferred)
        try:
            while unread:
                claim = self.read(unread[0], core)
                self.unloaded += [claim] if claim else []
                del unread[0]
        except StillImportingError:
            self._defer(unread[:1])
            return False
        finally:
            self._waiting = unread + importing  # for the next attempt, if something ends this one
        return True

    def read(self, plugin: FoundPlugin, core: Core) -> Claim | None:
        """Import a plugin and check what it says of itself. None if it is incompatible or broken, which is recorded.

        Raises:
            StillImportingError: another thread is in the middle of importing it, and waits for an import of this one.
        """
        backend: Backend | None = None
        try:
            with self._isolation.watch("its import or hook") as watched:
                backend = read_plugin(plugin, "opwheel_backend", Backend)
                watched.key = backend.dispatch_key
            check_claim(backend, core)
            changed = check_compatible(backend, core)
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
        operators = frozenset(core.operators if backend.operators is None else backend.operators) - changed.keys()
        self._trace("plugin", f"{plugin.name}: {backend.dispatch_key}, {len(operators)} operators", backend=plugin.name)
        claim = self.claims[plugin.name] = Claim(plugin, backend, operators, changed)
        return claim

    def await_imports(self) -> bool:
        """Wait for the plugins that other threads are importing. False if this thread is importing one."""
        while importing := [plugin for plugin in self._waiting if plugin.is_being_imported]:
            if any(plugin.is_imported_by_this_thread for plugin in importing):
                return False
            if self._is_overdue(importing):
                break
            time.sleep(0.001)
        return True

    def _find(self, core: Core) -> None:
        found, findings = find_plugins(self._group)
        self._statuses.findings += findings
        self._trace("discover", f"{len(found)} entry points in group {self._group}")
        for plugin in sorted(
            found, key=lambda p: (p.name, p.distribution not in self._policy.first_party, p.distribution)
        ):
            first = self.plugins.setdefault(plugin.name, plugin)
            if first is not plugin:
                self._statuses.record(
                    plugin,
                    State.SHADOWED,
                    code="OPWHEEL-E023",
                    name=f"{plugin.name}@{plugin.distribution}",
                    reason=f"{first.distribution} offers a backend of the same name",
                    fix=f"pip uninstall {first.distribution}, or pip uninstall {plugin.distribution}",
                )
        for plugin in self.plugins.values():
            rejection = self._policy.rejects(plugin.name, core.namespace)
            if rejection is None:
                self._waiting.append(plugin)
            else:
                reason, fix = rejection
                self._statuses.record(plugin, State.DISABLED, code="OPWHEEL-E060", reason=reason, fix=fix)
        self._statuses.findings += self._policy.unknown_names(
            set(self.plugins),
            core.namespace.upper(),
            lambda key: is_dispatch_key(core.namespace, core.operators[0], key),
        )
        backends = {*self.plugins, *self._policy.backends, *self._policy.runtimes}
        self._statuses.findings += unknown_variables(os.environ, core.namespace, backends)

    def _defer(self, importing: list[FoundPlugin]) -> None:
        names = [plugin.name for plugin in importing]
        self._trace("defer", f"{', '.join(names)} is being imported")
        if not self.deferred:
            self._patience_ends = time.monotonic() + self._policy.probe_timeout_s
        self.deferred.update(names)

    def _is_overdue(self, importing: list[FoundPlugin]) -> bool:
        """Whether other threads have been busy with these imports for so long that one goes on without them."""
        is_late = bool(self.deferred) and time.monotonic() > self._patience_ends
        return is_late and not any(plugin.is_imported_by_this_thread for plugin in importing)
