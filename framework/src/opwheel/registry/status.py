"""The state of an installed backend."""

import enum
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..printable import printable


class State(str, enum.Enum):
    """The states that a backend can end in."""

    LOADED = "loaded"
    UNSUPPORTED = "unsupported"  # the probe says this machine lacks it
    DISABLED = "disabled"  # the policy keeps it out
    SHADOWED = "shadowed"  # another backend won the dispatch key
    INCOMPATIBLE = "incompatible"  # ABI number, schemas, torch version or another requirement
    INSTALLED = "installed"  # kernels for another runtime than PyTorch, which opens them itself
    BROKEN = "broken"  # it failed; the exception is kept

    def __str__(self) -> str:
        return self.value


class BackendStatus(NamedTuple):
    """One backend as :meth:`~opwheel.registry.OperatorLibrary.backends` reports it.

    ``reason`` and ``fix`` are sentences for people; ``code`` is a key of the table of failures, empty when all is well.
    ``operators`` has what the dispatcher confirmed, ``by_reference`` those of them for which the backend has registered
    the operator's reference, for want of a kernel of its own, ``missing`` what was claimed in vain. ``load_ms`` is the
    time spent on opening the libraries, in milliseconds. ``exception`` is the original one of a broken backend.
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


def describe_exception(error: BaseException) -> str:
    """Class and text of an exception, on one line."""
    text = _shorten(" ".join(_shown(str, error).split()), 2000)
    return f"{_class_name(error)}: {text}" if text else _class_name(error)


def describe_failure(error: Exception) -> str:
    """What failed, and the exception that made it fail where there is one."""
    cause = error.__cause__
    return str(error) if cause is None else f"{error}: {describe_exception(cause)}"


def describe_value(value: object, depth: int = 3) -> str:
    """What a plugin handed over, shortened: values of built-in classes as ``repr`` shows them, of others the class."""
    kind: Any = type(value)
    if kind is int and int.bit_length(value) > 1000:  # type: ignore[arg-type]
        return f"<int of {int.bit_length(value)} bits>"  # type: ignore[arg-type]  # repr() refuses thousands of digits
    if kind in (str, bytes):
        return _shorten(repr(value[:200]))  # type: ignore[index]
    if kind in _PLAIN:
        return _shorten(_shown(repr, value))
    if kind in _BRACKETS and depth:
        return _shorten(_BRACKETS[kind].format(", ".join(_described(value, depth - 1))))
    return f"<{_class_name(value)} object>"


_PLAIN = (type(None), bool, int, float, complex, type(Path()))
_BRACKETS = {list: "[{}]", tuple: "({})", set: "{{{}}}", frozenset: "{{{}}}", dict: "{{{}}}"}


def _described(values: Any, depth: int) -> Iterator[str]:
    """Up to 20 items of a built-in collection; nothing asks a key for its hash."""
    items = values.items() if type(values) is dict else ((item,) for item in values)
    for item in islice(items, 20):
        yield ": ".join(describe_value(part, depth) for part in item)
    if len(values) > 20:
        yield "..."


def _shorten(text: str, length: int = 200) -> str:
    return text if len(text) <= length else f"{text[:length]}..."


def _class_name(value: object) -> str:
    # A metaclass may have a __name__ of its own.
    return str.__str__(type.__dict__["__name__"].__get__(type(value)))


def _shown(show: Callable[[Any], str], value: object) -> str:
    try:
        return str.__str__(show(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin's own __str__ may fail, too, or end the process
        return f"<{_class_name(value)} that cannot be shown: {_class_name(error)}>"
