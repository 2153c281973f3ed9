"""The state of an installed backend."""

import enum
from pathlib import Path
from typing import Any, NamedTuple

from ..text import describe_exception, printable


class State(str, enum.Enum):
    """The states that a backend can end in."""

    LOADED = "loaded"
    UNSUPPORTED = "unsupported"  # the probe says this machine lacks it
    DISABLED = "disabled"  # the policy keeps it out
    SHADOWED = "shadowed"  # other backends have the operators that it claims
    INCOMPATIBLE = "incompatible"  # ABI number, schemas, torch version or another requirement
    INSTALLED = "installed"  # kernels for another runtime than PyTorch, which opens them itself
    BROKEN = "broken"  # it failed; the exception is kept

    def __str__(self) -> str:
        return self.value


class BackendStatus(NamedTuple):
    """One backend as :meth:`~opwheel.registry.OperatorLibrary.backends` reports it.

    ``reason`` and ``fix`` are sentences for people; ``code`` is a key of the table of failures, empty when all is well.
    ``operators`` has what the dispatcher confirmed, ``by_reference`` those of them for which the backend has registered
    the operator's reference, for want of a kernel of its own, ``missing`` what was claimed in vain.
    ``served_by_others`` has the claimed operators that another backend serves, each with that backend's name.
    ``not_invariant`` has operators with those of their claims ``Operator(invariant=...)`` that the backend says its
    kernels do not keep. ``load_ms`` is the time spent on opening the libraries, in milliseconds. ``exception`` is the
    original one of a broken backend.
    """

    name: str
    state: State
    reason: str = ""
    fix: str = ""
    code: str = ""
    distribution: str = ""
    version: str = ""
    dispatch_key: str = ""
    device_type: str = ""
    operators: tuple[str, ...] = ()
    by_reference: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    served_by_others: tuple[tuple[str, str], ...] = ()
    not_invariant: tuple[tuple[str, tuple[str, ...]], ...] = ()
    library: Path | None = None
    load_ms: float = 0.0
    exception: BaseException | None = None

    @property
    def is_failure(self) -> bool:
        """Whether something is wrong with it, in part or altogether; absent hardware and policy are not wrong."""
        return self.state in (State.BROKEN, State.INCOMPATIBLE) or bool(self.missing)

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values; the exception as its class and text."""
        values = {**self._asdict(), "state": str(self.state)}
        values["operators"] = list(self.operators)
        values["by_reference"] = list(self.by_reference)
        values["missing"] = list(self.missing)
        values["served_by_others"] = dict(self.served_by_others)
        values["not_invariant"] = {name: list(claims) for name, claims in self.not_invariant}
        values["library"] = None if self.library is None else str(self.library)
        values["exception"] = None if self.exception is None else describe_exception(self.exception)
        return values


class Finding(NamedTuple):
    """Something wrong that belongs to no single backend: a policy file, an environment variable, damaged metadata."""

    code: str
    message: str
    fix: str

    def __str__(self) -> str:
        return printable(f"{self.message} [{self.code}]; to fix it: {self.fix}")
