"""Sees what a plugin's code registers in the dispatcher, takes back what it may not, and blocks what stays."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from .._torch.private import destroy_library, libraries_of_others, register_kernel, registered_through, uses_fallback
from .dispatcher import EVERY, Pair, Registrations, difference, foreign, operator_names, registrations
from .errors import NoKernelError
from .statuses import PACKAGE

# Kernels that backends were allowed to register, by namespace. A second OperatorLibrary for the same namespace finds
# them in the dispatcher, and must not take them for kernels that nobody claimed.
_accepted: dict[str, set[tuple[Pair, str]]] = {}


class Isolation:
    """Compares the library's namespace and the fallbacks with what they were before a plugin's code ran.

    ``blocked`` says why a call raises that would run, for this operator at this dispatch key, a kernel that nobody may
    have registered and that cannot be removed. ``earlier`` has the kernels that were there before the library itself
    had registered any, with their source lines.
    """

    def __init__(self, namespace: str) -> None:
        self.blocked: dict[Pair, str] = {}
        self.earlier: dict[Pair, str] = {}
        self._namespace = namespace
        self._operators: frozenset[str] = frozenset()
        self._before: Registrations = {}
        self._now: Registrations = {}
        self._lists_all = False
        self._blocks: list[Any] = []

    def clear(self, operators: Collection[str]) -> None:
        """Remove the kernels that came before the library's own, but for what an earlier import of it has left."""
        self._operators = frozenset(operators)
        self.earlier = self._earlier()
        self._remove(self.earlier, self._earlier)

    def start(self) -> None:
        """Remember what is registered now. Whatever comes later is the doing of the plugin whose code runs."""
        self._before = self._look()

    def expect_definitions(self) -> None:
        """Until :meth:`accept`, look for new operators that a C++ library defines, too: that takes milliseconds."""
        self._lists_all = True
        self._before = self._look()

    def changes(self, claimed_key: str = "") -> dict[Pair, str]:
        """What was registered since the last :meth:`accept`, with the source lines.

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

    def accept(self) -> None:
        """Take what :meth:`changes` saw for allowed, and compare with that from now on."""
        _accepted.setdefault(self._namespace, set()).update(difference(self._now, self._before).items())
        self.go_on()

    def go_on(self) -> None:
        """Compare with what :meth:`changes` saw from now on, because it has been dealt with."""
        self._before = self._now
        self._lists_all = False

    def undo(self, claimed_key: str = "") -> dict[Pair, str]:
        """Remove what was registered since the last :meth:`accept`.

        What C++ registered stays: the plugin that opened a library may go on to use it.

        Returns:
            What is still there.
        """
        left = self._remove(self.changes(claimed_key), lambda: self.changes(claimed_key))
        self.go_on()
        return left

    def is_active(self, pair: Pair, place: str) -> bool:
        """Whether a kernel that was registered in that source line is still the one that runs."""
        operator, key = pair
        lines = self._look().get(operator, "").splitlines()
        return any(
            line.startswith((f"{key}: registered at {place} ", f"{key}[alias]: registered at {place} "))
            for line in lines
        )

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

    def _remove(self, pairs: dict[Pair, str], look: Callable[[], dict[Pair, str]]) -> dict[Pair, str]:
        """Destroy the Python libraries behind them, until ``look`` finds no more. Returns what it finds in the end."""
        left = pairs
        for library in libraries_of_others() if left else ():
            if registered_through(library) & self._as_registered(left):
                destroy_library(library)
                left = look()
                if not left:
                    break
        return left

    def _as_registered(self, pairs: Collection[Pair]) -> set[Pair]:
        fallbacks = {("_::*", of) for operator, key in pairs if operator == EVERY for of in (key, "")}
        return fallbacks | {(f"{self._namespace}::{operator}", key) for operator, key in pairs}

    def _earlier(self) -> dict[Pair, str]:
        known = _accepted.get(self._namespace, set())
        found = foreign(self._look()).items()
        return {pair: place for pair, place in found if not place.startswith(PACKAGE) and (pair, place) not in known}

    def _look(self) -> Registrations:
        names = operator_names(self._namespace) if self._lists_all else frozenset()
        return registrations(self._namespace, self._operators | names)


def _raise(text: str) -> Callable[..., Any]:
    def kernel(*_: Any, **__: Any) -> Any:
        raise NoKernelError("OPWHEEL-E054", text)

    return kernel
