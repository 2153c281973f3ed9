"""How a plugin describes itself: the records that hooks return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..text import describe_value
from .errors import InvalidBackendError
from .values import (
    INVARIANCES,
    Field,
    Record,
    collection_of,
    mapping_of,
    optional,
    sequence_of,
    take_bool,
    take_function,
    take_integer,
    take_invariance,
    take_name,
    take_name_or_all,
    take_path,
    take_text,
)

if TYPE_CHECKING:
    import torch


class Probe(Record):
    """A backend's answer to: can this machine use you?

    Args:
        ok: whether it can.
        reason: what is missing, or what was found.
        fix: what the user could do about it.

    Raises:
        InvalidBackendError: a field has the wrong type.
    """

    fields = MappingProxyType(
        {
            "ok": Field(take_bool, "False"),
            "reason": Field(take_text, '"the driver is missing"'),
            "fix": Field(take_text, '"install the driver"'),
        }
    )

    ok: bool
    reason: str
    fix: str

    def __init__(self, ok: bool, reason: str = "", fix: str = "") -> None:
        self._take("OPWHEEL-E041", "Probe", ok=ok, reason=reason, fix=fix)


class Backend(Record):
    """Kernels for one dispatch key, and how to get them into the process.

    It cannot be changed.

    Args:
        name: the entry point's name: ``"cuda"``.
        device_type: ``torch.device.type`` of the tensors it computes on: ``"cuda"``.
        dispatch_key: PyTorch's dispatch key for that device: ``"CUDA"``. ROCm uses ``"cuda"`` and ``"CUDA"`` too.
        libraries: absolute paths of shared libraries, opened in this order. They register all operators in one block:
            where another backend serves one of these, a backend with libraries is not loaded.
        register: called with a ``torch.library.Library`` of kind IMPL when the libraries are open: registers what they
            have no kernels for, or everything. The library's ``impl`` does nothing for operators that are claimed and
            that another backend serves, so that the function need not know which those are.
        probe: says whether this machine can use the backend. It must not open the libraries, nor import the operator
            library, whose import may be waiting for the answer: it runs in a separate thread, for at most
            ``<PREFIX>_PROBE_TIMEOUT`` seconds (10).
        operators: names of the schemas covered, ``"name.out"`` for an overload; None for all of the library.
        requires: requirement specifiers of installed packages, ``"torch>=2.10"``.
        priority: the higher one comes first when the policy does not say otherwise.
        not_invariant: by names of schemas, which of the operator's claims ``Operator(invariant=...)`` these kernels do
            not keep, such as ``{"norm": ["batch"]}``; ``"*"`` stands for every operator. All others are promised, and
            the conformance kit tests them.

    Raises:
        InvalidBackendError: a field has the wrong type or is too long, or there is nothing to load.
    """

    fields = MappingProxyType(
        {
            "name": Field(take_name, '"acme"'),
            "device_type": Field(take_name, '"cpu"'),
            "dispatch_key": Field(take_name, '"CPU"'),
            "libraries": Field(sequence_of(take_path, "absolute paths"), '[Path(__file__).parent / "libacme.so"]'),
            "register": Field(optional(take_function), "register"),
            "probe": Field(optional(take_function), "probe"),
            "operators": Field(optional(collection_of(take_name, "names of operators")), '["add", "add.out"]'),
            "requires": Field(sequence_of(take_text, "texts"), '["torch>=2.10"]'),
            "priority": Field(take_integer, "0"),
            "not_invariant": Field(
                mapping_of(
                    take_name_or_all,
                    collection_of(take_invariance, f"some of {', '.join(INVARIANCES)}"),
                    "a dict from names of operators to claims",
                ),
                '{"add": ["batch"]}',
            ),
        }
    )
    required = ("name", "device_type", "dispatch_key", "libraries")
    name: str
    device_type: str
    dispatch_key: str
    libraries: tuple[Path, ...]
    register: Callable[[torch.library.Library], None] | None
    probe: Callable[[], Probe] | None
    operators: tuple[str, ...] | None
    requires: tuple[str, ...]
    priority: int
    not_invariant: Mapping[str, tuple[str, ...]]

    def __init__(
        self,
        name: str,
        device_type: str,
        dispatch_key: str,
        libraries: Sequence[Path] = (),
        register: Callable[[torch.library.Library], None] | None = None,
        probe: Callable[[], Probe] | None = None,
        operators: Iterable[str] | None = None,
        requires: Sequence[str] = (),
        priority: int = 0,
        not_invariant: Mapping[str, Iterable[str]] = MappingProxyType({}),
    ) -> None:
        title = f"Backend(name={describe_value(name)})"
        self._take(
            "OPWHEEL-E022",
            title,
            name=name,
            device_type=device_type,
            dispatch_key=dispatch_key,
            libraries=libraries,
            register=register,
            probe=probe,
            operators=operators,
            requires=requires,
            priority=priority,
            not_invariant=not_invariant,
        )
        if not self.libraries and self.register is None:
            problem = f"{title}: give libraries or register: there is nothing to load"
            fix = f"write libraries={Backend.fields['libraries'].example} or register=register in the Backend"
            raise InvalidBackendError("OPWHEEL-E022", problem, fix)


class Runtime(Record):
    """Kernels for a runtime that is not PyTorch's dispatcher: what the hook ``opwheel_runtime`` returns.

    Args:
        name: the entry point's name: ``"executorch"``.
        library: absolute path of the shared library with the kernels.
        operators: names of the schemas covered.
        requires: requirement specifiers of installed packages.

    Raises:
        InvalidBackendError: a field has the wrong type.
    """

    fields = MappingProxyType(
        {
            "name": Field(take_name, '"acme"'),
            "library": Field(take_path, 'Path(__file__).parent / "libacme.so"'),
            "operators": Field(sequence_of(take_name, "names of operators"), '["add", "add.out"]'),
            "requires": Field(sequence_of(take_text, "texts"), '["torch>=2.10"]'),
        }
    )
    required = ("name", "library", "operators")
    name: str
    library: Path
    operators: tuple[str, ...]
    requires: tuple[str, ...]

    def __init__(self, name: str, library: Path, operators: Sequence[str], requires: Sequence[str] = ()) -> None:
        self._take("OPWHEEL-E022", "Runtime", name=name, library=library, operators=operators, requires=requires)
