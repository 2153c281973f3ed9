"""Sees what a plugin's code registers in the dispatcher, refuses what it may not, and blocks what stays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .._torch.private import register_kernel, uses_fallback
from .discovery import FoundPlugin
from .dispatcher import (
    EVERY,
    Pair,
    Registrations,
    describe,
    difference,
    foreign,
    is_active,
    listed,
    operator_names,
    registrations,
    why_unreadable,
)
from .errors import NoKernelError
from .loading import LoadError
from .status import Finding
from .statuses import PACKAGE

# Kernels that backends were allowed to register, by namespace. A second OperatorLibrary for the same namespace finds
# them in the dispatcher, and must not take them for kernels that nobody claimed.
_accepted: dict[str, set[tuple[Pair, str]]] = {}


class Watched:
    """A plugin whose code runs: the dispatch key it claims, and in the end what was registered, with source lines."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.added: dict[Pair, str] = {}


class Isolation:
    """Compares the library's namespace and the fallbacks with what they were before a plugin's code ran.

    ``blocked`` says why a call raises that would run, for this operator at this dispatch key, a kernel that nobody may
    have registered. What such a plugin has registered is never removed: PyTorch has no function for that.
    """

    def __init__(self, namespace: str) -> None:
        self.blocked: dict[Pair, str] = {}
        self._namespace = namespace
        self._operators: frozenset[str] = frozenset()
        self._earlier: dict[Pair, str] = {}  # kernels from before the library's own, with their source lines
        self._before: Registrations = {}
        self._now: Registrations = {}
        self._lists_all = False
        self._blocks: list[Any] = []

    def note_operators(self, operators: Collection[str]) -> None:
        """The operators that were defined just now: kernels that they have already came before the library's own.

        What an earlier import of the library has left does not count.
        """
        self._operators = frozenset(operators)
        known = _accepted.get(self._namespace, set())
        found = foreign(self._look()).items()
        self._earlier = {
            pair: place for pair, place in found if not place.startswith(PACKAGE) and (pair, place) not in known
        }

    def start(self) -> None:
        """Remember what is registered now. Whatever comes later is the doing of the plugin whose code runs."""
        self._before = self._look()

    @contextmanager
    def watch(
        self, step: str, *, key: str = "", claimed: Collection[Pair] | None = None, may_define: bool = False
    ) -> Iterator[Watched]:
        """Run a plugin's code inside of this, and accept what it registers if it may.

        Nothing is compared when the code raises: :meth:`take_left` is for that.

        Args:
            step: whose code that is, in words: ``"its probe"``.
            key: the dispatch key that the plugin claims, as far as it is known.
            claimed: what may be registered; None: nothing, as nothing was claimed yet.
            may_define: look for new operators that a C++ library defines, too: that takes milliseconds.

        Raises:
            LoadError: something else was registered, or what is registered cannot be seen.
        """
        if problem := why_unreadable():
            fix = "install a release of PyTorch that this opwheel knows, or a newer opwheel"
            raise LoadError("OPWHEEL-E034", problem, fix)
        if may_define:
            self._lists_all = True
            self._before = self._look()
        watched = Watched(key)
        yield watched
        watched.added = self._changes(watched.key)
        refused = {pair: place for pair, place in watched.added.items() if pair not in (claimed or ())}
        if refused and claimed is not None:
            raise LoadError(
                "OPWHEEL-E054",
                f"it registered what it does not claim, what another backend has, or kernels for other schemas than "
                f"those of this core: {listed(refused)}",
                f"register only what operators= names, at its dispatch_key={watched.key!r} (in register= by the impl() "
                "of what it is given, which leaves out what another backend has), or claim more there: not "
                f"{describe(refused)}",
            )
        if refused:
            raise LoadError(
                "OPWHEEL-E054",
                f"{step} registered {listed(refused)}, before its claim was accepted",
                f"do not register {describe(refused)} there, but in what libraries= and register= name alone, which "
                "are used once the Backend is accepted",
            )
        _accepted.setdefault(self._namespace, set()).update(difference(self._now, self._before).items())
        self._go_on()

    def take_left(self, key: str) -> dict[Pair, str]:
        """What a plugin that claims this key and has failed leaves in the dispatcher, with the source lines."""
        left = self._changes(key)
        self._go_on()
        return left

    def find_earlier(
        self, plugins: Mapping[str, FoundPlugin], owner: Callable[[Pair], str | None]
    ) -> Iterator[Finding]:
        """Tell once of kernels that were there before the library's own; block those that are still the ones to run.

        Args:
            plugins: the installed ones by name: one of them may have done it.
            owner: the loaded backend that has a kernel in that place.
        """
        earlier, self._earlier = self._earlier, {}
        if not earlier:
            return
        now = self._look()
        left = [
            (operator, key)
            for (operator, key), place in earlier.items()
            if is_active(now.get(operator, ""), key, place) and not owner((operator, key))
        ]
        problem = f"{_authors(earlier, plugins)} registered {listed(earlier)} before {self._namespace} was imported"
        self.block(left, f"{problem}, and it cannot be removed; to fix it: {self._advice}")
        consequence = f"; calls that reach {describe(left)} raise" if left else "; that has no effect"
        yield Finding("OPWHEEL-E054", problem + consequence, self._advice)

    def find_later(self, plugins: Mapping[str, FoundPlugin]) -> Iterator[Finding]:
        """Tell once of kernels that were registered while no plugin's code was run by the library."""
        added = {pair: place for pair, place in self._changes().items() if pair[0] != EVERY}
        self._go_on()
        if added:
            authors = _authors(added, plugins)
            problem = f"{authors} registered {listed(added)} after the backends of {self._namespace} were loaded"
            yield Finding("OPWHEEL-E054", problem, self._advice)

    def block(self, pairs: Collection[Pair], why: str) -> None:
        """Register kernels that raise in the place of these, which cannot be removed and must not run."""
        for operator, key in pairs:
            fallen = [name for name in self._operators if uses_fallback(f"{self._namespace}::{name}", key)]
            for name in fallen if operator == EVERY else self._operators & {operator}:
                text = f"{self._namespace}::{name} is blocked at {key}: {why}"
                self._blocks.append(register_kernel(f"{self._namespace}::{name}", key, _raise(text)))
                self.blocked[name, key] = text
        self.start()

    def unblock(self, pairs: Collection[Pair]) -> None:
        """Stop raising there: a backend has kernels of its own in that place now."""
        for pair in pairs:
            self.blocked.pop(pair, None)

    def error(self, operator: str, key: str) -> NoKernelError | None:
        """The error that a call raises there, if it is blocked."""
        text = self.blocked.get((operator, key))
        return NoKernelError("OPWHEEL-E054", text) if text else None

    @property
    def _advice(self) -> str:
        return f"leave that to the libraries and register functions of backends, which {self._namespace} loads"

    def _changes(self, claimed_key: str = "") -> dict[Pair, str]:
        """What was registered since the comparison began, with the source lines.

        Left out are fallbacks for the device of ``claimed_key``, which its own package may bring. The CPU is
        everybody's.
        """
        self._now = self._look()
        if self._now == self._before:  # nearly always
            return {}
        is_own = claimed_key not in ("", "CPU")
        return {
            (operator, key): place
            for (operator, key), place in difference(self._now, self._before).items()
            if not (operator == EVERY and is_own and key.endswith(claimed_key))
        }

    def _go_on(self) -> None:
        """Compare with what :meth:`_changes` saw from now on, because it has been dealt with."""
        self._before = self._now
        self._lists_all = False

    def _look(self) -> Registrations:
        if why_unreadable():
            return {}
        names = operator_names(self._namespace) if self._lists_all else frozenset()
        return registrations(self._namespace, self._operators | names)


def _authors(added: Mapping[Pair, str], plugins: Mapping[str, FoundPlugin]) -> str:
    """The plugins in whose files something was registered, as far as PyTorch knows the source lines."""
    places = tuple(added.values())
    names = [
        repr(name)
        for name, plugin in plugins.items()
        if plugin.files and any(place.startswith(plugin.files) for place in places)
    ]
    return " and ".join(names) or "somebody"


def _raise(text: str) -> Callable[..., Any]:
    def kernel(*_: Any, **__: Any) -> Any:
        raise NoKernelError("OPWHEEL-E054", text)

    return kernel
