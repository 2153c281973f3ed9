"""What a plugin says about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InvalidBackendError
from .status import describe_value

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class Probe:
    """A backend's answer to: can this machine use you?

    Args:
        ok: whether it can.
        reason: what is missing, or what was found.
        fix: what the user could do about it.

    Raises:
        InvalidBackendError: a field has the wrong type.
    """

    ok: bool
    reason: str = ""
    fix: str = ""

    def __post_init__(self) -> None:
        for name, kind in (("ok", bool), ("reason", str), ("fix", str)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InvalidBackendError(
                    "OPWHEEL-E041", f"Probe: field {name} is {describe_value(value)}, expected {kind.__name__}"
                )


@dataclass(eq=False)
class Backend:
    """Kernels for one dispatch key, and how to get them into the process.

    Args:
        name: the entry point's name: ``"cuda"``.
        device_type: ``torch.device.type`` of the tensors it computes on: ``"cuda"``.
        dispatch_key: PyTorch's dispatch key for that device: ``"CUDA"``. ROCm uses ``"cuda"`` and ``"CUDA"``, too.
        libraries: absolute paths of shared libraries, opened in this order.
        register: for a backend without a library: called with a ``torch.library.Library`` of kind IMPL.
        probe: says whether this machine can use the backend. It must not open the libraries, nor import the operator
            library, whose import may be waiting for the answer: it is asked in a thread of its own, for
            ``<PREFIX>_PROBE_TIMEOUT`` seconds (10) at most.
        operators: names of the schemas covered, ``"name.out"`` for an overload; None for all of the catalogue.
        requires: requirement specifiers of installed packages, ``"torch>=2.10"``.
        priority: the higher one wins a key when the policy does not say otherwise.

    Raises:
        InvalidBackendError: a field has the wrong type, or there is nothing to load.
    """

    name: str
    device_type: str
    dispatch_key: str
    libraries: Sequence[Path] = ()
    register: Callable[[torch.library.Library], None] | None = None
    probe: Callable[[], Probe] | None = None
    operators: Iterable[str] | None = None
    requires: Sequence[str] = ()
    priority: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _CHECKS[field.name](value):
                raise self._invalid(f"field {field.name} is {describe_value(value)}, expected {_expected(field)}")
        if bool(self.libraries) == (self.register is not None):
            raise self._invalid("give either libraries or register, exactly one of them")
        self.libraries = tuple(Path(path) for path in self.libraries)
        self.operators = None if self.operators is None else frozenset(self.operators)
        self.requires = tuple(self.requires)

    def _invalid(self, problem: str) -> InvalidBackendError:
        return InvalidBackendError("OPWHEEL-E022", f"Backend(name={describe_value(self.name)}): {problem}")


def _expected(field: Field[Any]) -> str:
    return "a sequence of absolute paths" if field.name == "libraries" else str(field.type)


def is_text(value: Any) -> bool:
    """Whether it is a text that is not empty."""
    return isinstance(value, str) and value != ""


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_iterable_of_text(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(item, str) for item in value)


def is_sequence_of_text(value: Any) -> bool:
    """Whether it is a list or tuple of texts."""
    return isinstance(value, (list, tuple)) and _is_iterable_of_text(value)


def _is_sequence_of_absolute_paths(value: Any) -> bool:
    # A relative path would mean another file in another working directory.
    return isinstance(value, (list, tuple)) and all(
        isinstance(item, (str, Path)) and Path(item).is_absolute() for item in value
    )


def _is_optional(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "name": is_text,
    "device_type": is_text,
    "dispatch_key": is_text,
    "libraries": _is_sequence_of_absolute_paths,
    "register": _is_optional(callable),
    "probe": _is_optional(callable),
    "operators": _is_optional(_is_iterable_of_text),
    "requires": is_sequence_of_text,
    "priority": _is_integer,
}
