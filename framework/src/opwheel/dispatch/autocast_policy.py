"""What a declaration says about ``torch.autocast``: a policy for all arguments or for each, and the results' dtype."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from .rules.rule import refuse

if TYPE_CHECKING:
    from .overload import Overload

AutocastPolicy = Literal["promote", "lower_precision", "float32"]
_WORDS = get_args(AutocastPolicy)

DEVICES = ("cpu", "cuda", "xpu")
"""Those whose autocast has rules."""


class Autocast(NamedTuple):
    """What ``torch.autocast`` does to the floating-point arguments and results of an operator.

    Tensors of float64, and those on other devices than the one that autocast is enabled for, stay as they are.

    Args:
        arguments: one policy for all tensor arguments, or a dict from their names to policies. Those that are not
            named, or have the policy None, are not cast. ``"lower_precision"`` casts to autocast's dtype, ``"float32"``
            to float32, and ``"promote"`` casts all arguments that have this policy to autocast's dtype, or to float32
            where one of them has another.
        result: the tensor argument whose dtype, as the caller gave it, floating-point results are returned in: the
            operator computes in one dtype and its caller sees none of that. A dict from names of results to such
            arguments leaves the other results as they are. Without it results have the dtypes that the kernel gives.
        devices: what holds in the place of both for some device types, as PyTorch's own lists of operators differ: a
            dict from ``"cpu"``, ``"cuda"`` or ``"xpu"`` to any form of the declaration but one with ``devices``.
    """

    arguments: AutocastPolicy | Mapping[str, AutocastPolicy | None] | None
    result: str | Mapping[str, str] = ""
    devices: Mapping[str, AutocastDeclaration] = MappingProxyType({})


AutocastDeclaration = AutocastPolicy | Mapping[str, AutocastPolicy | None] | Autocast | None
"""A policy or a dict of policies alone say nothing about results; None: no argument is cast."""

EXPECTED = (
    f"{' or '.join(map(repr, _WORDS))}, a dict from names of arguments to these or None, None, or "
    "opwheel.Autocast(arguments, result='name of an argument', devices={'cuda': ...})"
)


def as_autocast(declaration: AutocastDeclaration, device_type: str = "") -> Autocast:
    """Any form of the declaration as the longest one; what holds for the device type, if one is given."""
    declared = declaration if isinstance(declaration, Autocast) else Autocast(declaration)
    return as_autocast(declared.devices[device_type]) if device_type in declared.devices else declared


def policies_of(overload: Overload, device_type: str) -> tuple[AutocastPolicy | None, ...]:
    """The policy of each argument, in the schema's order; of those that are no tensors it has no effect."""
    arguments = as_autocast(overload.operator.autocast, device_type).arguments
    if isinstance(arguments, Mapping):
        return tuple(arguments.get(name) for name in overload.names)
    return (arguments,) * len(overload.names)


def dtype_sources(overload: Overload, device_type: str) -> tuple[int | None, ...]:
    """For each result the position of the argument whose dtype it is returned in; None where it stays as it is."""
    result = as_autocast(overload.operator.autocast, device_type).result
    sources = result if isinstance(result, Mapping) else dict.fromkeys(overload.result_names, result)
    named = (sources.get(name) for name in overload.result_names)
    return tuple(overload.names.index(name) if name else None for name in named)


def is_autocast(value: Any) -> bool:
    """Whether a value has one of the forms of the declaration."""
    if not isinstance(value, Autocast):
        return _are_arguments(value)
    return _are_arguments(value.arguments) and _is_result(value.result) and _are_devices(value.devices)


def check_names(overload: Overload) -> None:
    """Refuse what names no argument or result, and what an operator that writes declares: autocast leaves it alone.

    Raises:
        ValueError: with the schema, what is wrong, and which names it has.
    """
    declared = as_autocast(overload.operator.autocast)
    for one in (declared, *map(as_autocast, declared.devices.values())):
        _check_names_of(overload, one)


def _check_names_of(overload: Overload, declared: Autocast) -> None:
    named = declared.arguments if isinstance(declared.arguments, Mapping) else ()
    results = declared.result if isinstance(declared.result, Mapping) else ()
    sources = declared.result.values() if isinstance(declared.result, Mapping) else filter(None, [declared.result])
    if overload.mutates and not overload.is_out and (named or declared.result):
        problem = "autocast is declared by argument, but torch.autocast leaves operators that write as they are"
        refuse(overload, problem, "leave it out")
    kinds = {overload.names[i]: str(overload.schema.arguments[i].real_type) for i in overload.tensor_positions}
    single = [name for name, kind in kinds.items() if kind == "Tensor"]
    _check_each(overload, "autocast", named, list(kinds), "a tensor argument")
    _check_each(overload, "autocast: result", sources, single, "an argument that is one tensor")
    _check_each(overload, "autocast: result", results, overload.result_names, "a result")


def _check_each(overload: Overload, field: str, names: Iterable[str], known: Sequence[str], kind: str) -> None:
    for name in names:
        if name not in known:
            refuse(overload, f"{field}: {name!r} is not {kind}", f"{kind} is {' or '.join(map(repr, known)) or 'none'}")


def _are_arguments(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(k, str) and (v is None or v in _WORDS) for k, v in value.items())
    return value is None or (isinstance(value, str) and value in _WORDS)


def _are_devices(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        device in DEVICES and is_autocast(one) and not as_autocast(one).devices for device, one in value.items()
    )


def _is_result(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(one, str) and one for pair in value.items() for one in pair)
    return isinstance(value, str)
