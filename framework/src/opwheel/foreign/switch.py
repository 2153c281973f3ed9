"""On and off: all kernels of a library for operators that others define, or some of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .._torch import private
from ..registry.errors import ForeignOperatorError
from .declaration import ForeignKernel
from .kernel import Decision, Rules
from .override import Override, keys_of
from .owners import check_on_top, lock

if TYPE_CHECKING:
    from types import TracebackType

    from ..registry.library import OperatorLibrary


class ForeignStatus(NamedTuple):
    """What is known of one kernel.

    ``state`` is ``"on"``, ``"off"`` or ``"waiting"`` (switched on, but nobody has defined the operator yet); ``keys``
    are the dispatch keys, ``kind`` says whether the kernel decides in C++ (``"native"``) or in Python.
    """

    name: str
    operator: str
    state: str
    keys: tuple[str, ...]
    kind: str
    when: tuple[str, ...]
    uses: tuple[str, ...]


class Switched:
    """What a call has switched on. As a context manager it is on for the block, in the whole process.

    Attributes:
        operators: what the call has switched on; empty if all of it was on.
    """

    def __init__(self, kernels: ForeignKernels, declarations: Iterable[ForeignKernel]) -> None:
        self._kernels = kernels
        self._declarations = tuple(declarations)
        self.operators = tuple(dict.fromkeys(one.operator for one in self._declarations))

    def off(self) -> None:
        """Switch off what this call has switched on."""
        self._kernels.remove(self._declarations)

    def __enter__(self) -> Switched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.off()


class ForeignKernels:
    """The kernels that a library has for operators of others; ``library.foreign``.

    Args:
        library: the library, whose module ``foreign`` declares them as ``FOREIGN``.
        declarations: in the place of that module's.
        version: of the library's distribution.
    """

    def __init__(
        self, library: OperatorLibrary, declarations: Iterable[ForeignKernel] | None = None, version: str = ""
    ) -> None:
        self._library = library
        self._version = version
        module = f"{library.namespace}.foreign"
        if declarations is None and find_spec(module):
            declarations = import_module(module).FOREIGN
        self.declarations: tuple[ForeignKernel, ...] = tuple(declarations or ())
        self._on: dict[ForeignKernel, list[Override]] = {}  # in the order in which they were switched on
        self._waiting: list[ForeignKernel] = []

    @property
    def names(self) -> tuple[str, ...]:
        """What can be switched on by itself."""
        return tuple(dict.fromkeys(one.label for one in self.declarations))

    def on(self, *names: str) -> Switched:
        """Switch kernels on, in the whole process; all if none is named. What is on stays on.

        An operator that nobody has defined, of a library that is not loaded, waits: call this again when it is.

        Args:
            names: some of :attr:`names`.

        Raises:
            ForeignOperatorError: an operator is not known, has another owner, or a mode is active. Nothing is changed.
            LockError: the lock file that the library follows says that they are off.
            ValueError: a name is not one of :attr:`names`.
        """
        for name in names:
            if name not in self.names:
                raise ValueError(f"{name!r} is not one of {', '.join(map(repr, self.names))}")
        with lock:
            wanted = [one for one in self.declarations if not names or one.label in names]
            new = [one for one in wanted if one not in self._on]
            if not new:
                return Switched(self, ())
            self._check_may_switch()
            self._library.check_foreign()
            waiting = [one for one in new if self._waits(one)]
            added: dict[ForeignKernel, list[Override]] = {}
            try:
                for declaration in new:
                    if declaration not in waiting:
                        self._install(declaration, added.setdefault(declaration, []))
            except BaseException:
                for overrides in reversed(added.values()):
                    _remove(overrides)
                raise
            switched = [one for one in new if one not in self._waiting]
            self._on |= added
            self._waiting = [one for one in {*self._waiting, *waiting} if one not in self._on]
            self._changed(added)
            return Switched(self, switched)

    def off(self) -> None:
        """Switch everything off: the dispatcher is as it was before.

        Raises:
            ForeignOperatorError: a mode is active, or somebody has registered a kernel over one of these.
        """
        with lock:
            self.remove((*self._on, *self._waiting))

    def remove(self, declarations: Iterable[ForeignKernel]) -> None:
        """Switch some of the declarations off; see :meth:`off`."""
        with lock:
            unwanted = set(declarations)
            gone = {one: self._on[one] for one in reversed(self._on) if one in unwanted}
            self._waiting = [one for one in self._waiting if one not in unwanted]
            if not gone:
                return
            self._check_may_switch()
            for overrides in gone.values():
                for override in overrides:
                    check_on_top(override.operator, override.key, self._library.namespace)
            for declaration, overrides in gone.items():
                _remove(overrides)
                del self._on[declaration]
            self._changed(gone)

    def status(self) -> list[ForeignStatus]:
        """Each kernel, and whether it is on."""
        found = []
        for one in self.declarations:
            overrides = self._on.get(one, [])
            state = "on" if overrides else "waiting" if one in self._waiting else "off"
            keys = tuple(override.key for override in overrides)
            kind = overrides[0].kind if overrides else ""
            found.append(ForeignStatus(one.label, one.operator, state, keys, kind, one.conditions, one.uses))
        return found

    def why(self, operator: str, *args: Any, **kwargs: Any) -> Decision:
        """Whose kernel computes such a call where the kernels are on, and which condition decides. Calls nothing.

        Args:
            operator: as declared, ``"aten::rms_norm"``.
            *args: of the call, in the schema's order.
            **kwargs: of the call, by the schema's names.

        Raises:
            ValueError: no kernel is declared for the operator.
        """
        schema = private.schema_of(operator)
        rules = [Rules(one, schema) for one in self.declarations if one.operator == operator]
        if not rules or schema is None:
            known = ", ".join(dict.fromkeys(one.operator for one in self.declarations))
            raise ValueError(f"there is no kernel for {operator!r}; there are some for {known}")
        return rules[0].decide(args, kwargs)

    def _rows(self) -> list[list[str]]:
        """What is on: for the digest, and for the keys of compile caches."""
        return [
            [override.operator, override.key, self._library.namespace, self._version, *declaration.conditions]
            for declaration, overrides in self._on.items()
            for override in overrides
        ]

    def _waits(self, declaration: ForeignKernel) -> bool:
        """Whether the operator's library is not loaded; an operator that a loaded one lacks is refused."""
        if private.is_defined(declaration.operator):
            return False
        namespace = declaration.operator.partition("::")[0]
        if not private.is_namespace_defined(namespace):
            return True
        raise ForeignOperatorError(
            "OPWHEEL-E100",
            f"{self._library.namespace} has a kernel for {declaration.operator}, which does not exist in this "
            f"{'PyTorch' if namespace == 'aten' else namespace} (torch {torch.__version__})",
        )

    def _install(self, declaration: ForeignKernel, overrides: list[Override]) -> None:
        keys = keys_of(declaration.operator, declaration.device_type)
        for name in declaration.uses:
            winner = self._library.explain(name, declaration.device_type).winner
            if winner is None or name in winner.by_reference:
                raise ForeignOperatorError(
                    "OPWHEEL-E100",
                    f"{self._library.namespace} has no kernel for {name} at {keys[-1]}, which that for "
                    f"{declaration.operator} needs; `{self._library.namespace} doctor` says why",
                )
        # One by one: what is there when the next one fails has to be removed.
        overrides.extend(Override(self._library.namespace, declaration, key) for key in keys)

    def _check_may_switch(self) -> None:
        if modes := private.active_modes():
            raise ForeignOperatorError(
                "OPWHEEL-E102",
                f"kernels of {self._library.namespace} for operators of others cannot be switched while active: "
                f"{', '.join(modes)}",
            )

    def _changed(self, declarations: Iterable[ForeignKernel]) -> None:
        for declaration in declarations:
            private.forget_kernels(getattr(*private.packet_and_name(declaration.operator)))
        rows = self._rows()
        self._library.note_foreign(rows)
        _set_tag(self._library.namespace, rows)


def _remove(overrides: list[Override]) -> None:
    while overrides:
        overrides.pop().remove()


def _set_tag(namespace: str, rows: list[list[str]]) -> None:
    """Let the compile caches on disk tell programs that were compiled with other kernels."""
    start = f" {namespace}:foreign="
    digest = hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()[:_DIGITS]

    def change(tag: str) -> str:
        before, _, rest = tag.partition(start)
        return before + (f"{start}{digest}" if rows else "") + rest[_DIGITS:]

    private.change_cache_key_tag(change)


_DIGITS = 16
