"""An operator library: a namespace of operators whose kernels come from backend plugins."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._torch.private import dispatch_key_of
from ..memory.settings import HUGE_PAGES, RESULT_CACHE, check_setting
from .errors import NoKernelError
from .isolation import Isolation
from .loader import Loader
from .policy import Policy, read_policy
from .schemas import Core, open_schemas
from .search import Search, StillImportingError
from .status import BackendStatus, Finding
from .statuses import Statuses, describe
from .trace import Tracer

if TYPE_CHECKING:
    from .explanation import Choice
    from .lock import Snapshot
    from .table import Backends


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

    ``operators`` has the names of all ``schemas``, with the overload: ``"name"``, ``"name.out"``.
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
            from .absence import not_a_folder

            raise not_a_folder(plugins_file.parent, namespace, distribution)
        self.namespace = namespace
        self.distribution = distribution
        self.schema_library = schema_library
        self._groups = entry_point_group, f"{namespace}.runtimes"
        self.prefix = namespace.upper()
        self.abi = 0
        self.schemas: tuple[str, ...] = ()
        self.operators: tuple[str, ...] = ()
        self.policy: Policy = read_policy(plugins_file, os.environ, self.prefix)
        self.trace = Tracer(namespace, self.policy.trace)
        self._expected = tuple(operators)
        self._core = Core(namespace, distribution)
        self._statuses = Statuses(namespace, self.policy, self.trace)
        self._isolation = Isolation(namespace)
        self._loader = Loader(namespace, self.policy, self._statuses, self._isolation)
        self._search = Search(entry_point_group, self.policy, self._statuses, self._isolation, self._loader, self.trace)
        self._lock = threading.RLock()
        self._foreign: list[list[str]] = []
        self._load_count = 0  # how often backends were loaded
        self._thread = threading.local()

    def load_schemas(self) -> None:
        """Open the schema library and read the schemas back from it.

        Raises:
            ImportError: the library is missing, or something else in this process has defined the namespace already.
            LockError: what is installed differs from the lock file, or there is no such file.
        """
        if self.policy.lock is not None:
            from .lock import Guard

            guard = self._loader.guard = Guard(self.policy.lock, self.namespace, self.policy)
            guard.check_installed(self.distribution, self._groups, self.schema_library)
            self.trace("lock", self.policy.lock)
        self._core = open_schemas(self.namespace, self.schema_library, self.distribution, self._expected)
        self.abi, self.schemas, self.operators = self._core.abi, self._core.schemas, self._core.operators
        self._isolation.note_operators(self.operators)
        self.trace("schemas", f"{len(self.schemas)} operators from {self.schema_library}, ABI {self.abi}")

    def discover(self) -> bool:
        """Find the installed backends, apply the policy and ask each plugin what it claims. Opens no library.

        While the import of a plugin is under way, none is asked: the choice must not depend on who is imported first.
        :meth:`load_pending` goes on. An import by another thread is not waited for without end.

        Returns:
            Whether all were asked that can be.
        """
        with self._lock:
            return self._search.discover(self._core)

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
        if not self._search.deferred or not self._search.await_imports():
            return False
        with self._lock:
            if self._search.is_waiting or self._search.unloaded:
                self._load_found()
            elif arrived := self._loader.arrived():
                self._note_others()  # by now they have been accepted, and are not the doing of these
                self._loader.load(arrived)
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
        with self._lock:
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
        from .no_kernel import check_loaded

        statuses = self.backends()
        for name in names:
            check_loaded(name, statuses, self._search.plugins, self.policy)

    def load(self, name: str) -> BackendStatus:
        """Load a backend that is not loaded yet, whatever policy or ``<PREFIX>_AUTOLOAD=0`` say.

        Raises:
            BackendUnavailableError: it is not installed, cannot be loaded, or other backends have all it claims.
            LockError: the lock file does not have it among the winners.
        """
        with self._lock:
            status = self.backends().get(name)
            if status is not None and name in self._search.plugins and not self._loader.is_stuck_or_loaded(name):
                self._note_others()
                claim = self._search.claims.get(name)
                with suppress(StillImportingError):
                    claim = claim or self._search.read(self._search.plugins[name], self._core)
                self._loader.load([claim] if claim else [])
            self.require(name)
            return self._statuses.by_name[name]

    def set_huge_pages(self, setting: str) -> None:
        """Change the policy's ``huge-pages`` in this process: whether large new results on a CPU ask for them.

        Args:
            setting: ``"advise"`` or ``"never"``.

        Raises:
            ValueError: it is neither.
        """
        self._change_policy(huge_pages=check_setting("huge pages", setting, HUGE_PAGES))

    def set_result_cache(self, setting: str) -> None:
        """Change the policy's ``result-cache`` in this process: whether the memory of large results on a CPU is kept.

        Args:
            setting: ``"keep"`` or ``"never"``.

        Raises:
            ValueError: it is neither.
        """
        self._change_policy(result_cache=check_setting("result cache", setting, RESULT_CACHE))

    def backend_at(self, operator: str, dispatch_key: str) -> str:
        """The loaded backend whose kernel is there, with its distribution; empty if there is none."""
        name = self._loader.owner((operator, dispatch_key))
        return f"the backend {name!r} ({self._statuses.by_name[name].distribution})" if name else ""

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        """The error of a call that found no kernel, caused by what broke the backend that should have had one."""
        from .no_kernel import no_kernel_error, wrong_layout_error

        name = f"{self.namespace}::{operator}"
        if layout != "strided":
            return wrong_layout_error(name, device_type, layout)
        blocked = self._isolation.error(operator, dispatch_key_of(device_type) or "")
        return blocked or no_kernel_error(
            name, device_type, self.backends(), self._search.claims, self._search.plugins, self.policy
        )

    def explain(self, operator: str, device_type: str) -> Choice:
        """Which backend serves the operator on tensors of that device type, and why the others do not."""
        from .explanation import explain

        statuses = self.backends().values()
        return explain(statuses, operator, device_type, self._isolation.blocked, self._loader.deciding_rule)

    def digest(self) -> str:
        """A fingerprint of the choice of backends: equal wherever plugins and policy are the same."""
        from .explanation import digest

        self.load_pending()
        return digest(self._search.claims.values(), self.policy, self._foreign)

    def check_foreign(self) -> None:
        """Check that kernels for operators of others may be switched on.

        Raises:
            LockError: the lock file that this process follows says that they are off.
        """
        if self._loader.guard is not None:
            self._loader.guard.check_foreign("on")

    def note_foreign(self, rows: list[list[str]]) -> None:
        """Remember which kernels for operators of others are on: the digest tells."""
        self._foreign = rows

    def snapshot(self) -> Snapshot:
        """What a lock file would say of this process.

        Raises:
            LockError: something is wrong that must not be locked.
        """
        from .lock import take_snapshot

        failed = [describe(status) for status in self.backends().values() if status.is_failure]
        owners, own_files = self._loader.owners, (self.distribution, self.schema_library)
        claims = self._search.claims.values()
        return take_snapshot(own_files, self._groups, self.policy, claims, owners, failed)

    def compare(self, lock: str, *, winners: bool = True) -> list[Finding]:
        """How this process differs from a lock file, whether or not it was told to follow one.

        Without ``winners``, as far as one can say where no backend is loaded.

        Raises:
            LockError: the file cannot be used.
        """
        from .lock import Guard

        guard = Guard(lock, self.namespace, self.policy)
        differences = guard.compare_installed(self.distribution, self._groups, self.schema_library)
        if winners:
            self.load_pending()
            differences += guard.compare_winners(self._search.claims.values(), self._loader.owners)
        return guard.findings(differences)

    def _load_found(self) -> None:
        if not self.discover():
            return
        claims, self._search.unloaded = self._search.unloaded, []
        try:
            self._loader.load(claims)
        except BaseException:
            self._search.unloaded = [claim for claim in claims if claim.backend.name not in self._statuses.by_name]
            raise
        self._load_count += bool(claims)
        self._search.deferred.update(self._loader.without_device)
        self._statuses.findings += self._isolation.find_earlier(self._search.plugins, self._loader.owner)
        self._statuses.report()

    def _note_others(self) -> None:
        """Tell of kernels that were registered after the backends were loaded."""
        with self._lock:
            if self._search.is_complete:
                self._statuses.findings += self._isolation.find_later(self._search.plugins)

    def _change_policy(self, **changed: Any) -> None:
        with self._lock:
            self.policy = self.policy.replaced(**changed)
            self._loader.set_policy(self.policy)
