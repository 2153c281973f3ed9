"""How a placement rule is written: ``"x=S(:-1), weight=P(sum) -> S(:-1), P(sum) if offset=0.0"``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_PLACEMENT = r"R|S\((?:-?\d+|:|:-\d+|\.\.\.)\)|P\((?:sum|avg)\)"
_NAMED = re.compile(rf"\s*(\w+)=({_PLACEMENT})\s*(?:,|$)")
_RESULT = re.compile(rf"\s*({_PLACEMENT})\s*(?:,|$)")
_STRING = r"""'[^']*'|"[^"]*\""""
_CONDITION = re.compile(rf"\s*(\w+(?:\.dim|\.size\(\d+\))?)=({_STRING}|\[[^]]*\]|[^,]+?)\s*(?:,|$)")
WRITTEN_AS = (
    "write it as 'x=S(0), weight=R -> S(0)': placements are R, S(0), S(1) ..., S(:) and S(:-1) for every dimension and "
    "for all but the last, P(sum) and P(avg); then, where they are needed, 'evenly' and 'if name=value, x.dim=4, "
    "x.size(0)=1'"
)


class PlacementRule(NamedTuple):
    """One way to spread a call over the processes of one dimension of a mesh, which needs no communication.

    A placement is ``R`` (whole on every process), ``S(1)`` (shared out along dimension 1), ``S(:-1)`` (along any one of
    the dimensions but the last, the same one wherever it is written; ``S(:)``: along any), ``S(...)`` (along any
    dimension, counted from the end, as operands broadcast: those that do not have it are whole), ``P(sum)`` or
    ``P(avg)`` (the tensor is the sum, or the mean, of what the processes have). Only a sharded reduction has ``S(-1)``.

    Args:
        arguments: by name; tensors that are not named are whole. All tensors of a list have the same.
        results: in order; none for an operator that returns nothing. What is written to stays where it is.
        evenly: whether the processes have to have parts of the same size.
        conditions: values of arguments; under ``x.dim`` a tensor's number of dimensions, and None where an optional one
            is left out; under ``x.size(0)`` the size 1.
    """

    arguments: Mapping[str, str]
    results: tuple[str, ...]
    evenly: bool = False
    conditions: Mapping[str, Any] = MappingProxyType({})

    def __str__(self) -> str:
        text = ", ".join(f"{name}={placement}" for name, placement in self.arguments.items())
        text += f" -> {', '.join(self.results)}".rstrip() + " evenly" * self.evenly
        conditions = ", ".join(f"{name}={value!r}" for name, value in self.conditions.items())
        return f"{text} if {conditions}" if conditions else text


def parse(text: str) -> PlacementRule:
    """The rule that a text stands for.

    Raises:
        ValueError: with the part that is not understood, and how rules are written.
    """
    if not isinstance(text, str) or "->" not in text:
        raise ValueError(f"the placement rule {text!r} has no '->'; {WRITTEN_AS}")
    head, _, conditions = text.partition(" if ")
    before, _, after = head.partition("->")
    bare = after.strip().removesuffix("evenly").strip()
    return PlacementRule(
        {name: placement for name, placement in _all(_NAMED, before, text)},  # noqa: C416  # which mypy understands
        tuple(one for (one,) in _all(_RESULT, bare, text)),
        bare != after.strip(),
        {name: _value(value, text) for name, value in _all(_CONDITION, conditions, text)},
    )


def _all(pattern: re.Pattern[str], part: str, text: str) -> list[tuple[str, ...]]:
    found, position = [], 0
    while part[position:].strip():
        match = pattern.match(part, position)
        if match is None:
            raise ValueError(
                f"the placement rule {text!r} is not understood at {part[position:].strip()!r}; {WRITTEN_AS}"
            )
        found.append(match.groups())
        position = match.end()
    return found


def _value(literal: str, text: str) -> Any:
    if literal in ("inf", "-inf"):  # which is how floats are written, and no literal
        return float(literal)
    try:
        return ast.literal_eval(literal)
    except (ValueError, SyntaxError):
        raise ValueError(f"the placement rule {text!r}: {literal!r} is no value; {WRITTEN_AS}") from None
