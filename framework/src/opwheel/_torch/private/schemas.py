"""Schemas of operators."""

from __future__ import annotations

from typing import Any

import torch

from ..lookup import Missing, find, is_missing, needed

parse_schema = find("torch._C.parse_schema")  # of a schema's text: with ``arguments`` and ``returns``

_dispatch_find_schema_or_throw = find("torch._C._dispatch_find_schema_or_throw")
_get_operation_overload = find("torch._C._get_operation_overload")

# What schemas may write as defaults for values that the dispatcher has numbers for.
_NUMBERED = {
    "ScalarType": [
        *("uint8", "int8", "short", "int", "long", "bool"),
        *("half", "float", "double", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    ],
    "Layout": ["strided"],
    "MemoryFormat": ["contiguous_format"],
}


def schema(op: Any) -> Any:
    """The schema of an overload, with ``arguments`` and ``returns``."""
    # The attribute is there at once: a graph's operators are asked again and again.
    return schema_of(op.name()) if is_missing("torch.ops.aten.neg.default._schema") else op._schema


def default_of(argument: Any) -> Any:
    """The default value of a schema's argument as Python has it; None where it has none."""
    value = argument.default_value
    kind = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
    if value is None:
        return None
    if kind == "Device":
        return torch.device(value)
    if kind in _NUMBERED:
        names = {parse_schema(f"f({kind} x={n}) -> ()").arguments[0].default_value: n for n in _NUMBERED[kind]}
        return getattr(torch, names[value])
    return value


def schema_of(operator: str) -> Any | None:
    """The schema of an operator (``"ns::name"`` or ``"ns::name.overload"``), None when nobody defined it."""
    name, _, overload = operator.partition(".")
    find_schema = needed(_dispatch_find_schema_or_throw)
    try:
        return find_schema(name, overload).schema()
    except RuntimeError:
        return None


def is_defined(operator: str) -> bool:
    """Whether :func:`schema_of` finds one: in a microsecond, where an exception takes fifty."""
    if isinstance(_get_operation_overload, Missing):
        return schema_of(operator) is not None
    name, _, overload = operator.partition(".")
    return _get_operation_overload(name, overload) is not None


def packet_and_name(operator: str) -> tuple[Any, str]:
    """What ``torch.ops`` has for an operator's name, and the name of the overload in it; makes no overload."""
    namespace, _, name = operator.partition("::")
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops, namespace), base), overload or "default"


def renew_operator(op: Any, packet: Any) -> None:
    """Let objects of ``torch.ops`` that stood for an operator stand for what was defined by its name since.

    The dispatcher shows dispatch modes the overload that it showed first.

    Args:
        op: the overload.
        packet: of all overloads of its name.
    """
    namespace, _, name = op.name().partition("::")
    name, _, overload = name.partition(".")
    operators = getattr(torch.ops, namespace)
    new_packet = getattr(operators, name)
    new_op = getattr(new_packet, overload or "default")
    old = {id(new_op): op, id(new_packet): packet}
    for new in (new_op, new_packet):  # they refer to each other
        attributes = {key: old.get(id(value), value) for key, value in vars(new).items()}
        vars(old[id(new)]).clear()
        vars(old[id(new)]).update(attributes)
    setattr(operators, name, packet)
