"""What placement rules say of one call: the placements of its tensors and results along one dimension of a mesh."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .notation import PlacementRule

if TYPE_CHECKING:
    from ..overload import Overload

_ONE = re.compile(r"S\((\d+)\)")
_FREE = re.compile(r"S\(:(?:-(\d+))?\)")
BROADCAST = "S(...)"


class Placed(NamedTuple):
    """One way to place a call.

    Args:
        arguments: by position among the schema's arguments, for those that are or contain tensors.
        results: in order.
        evenly: whether the processes have to have parts of the same size.
    """

    arguments: Mapping[int, str]
    results: tuple[str, ...]
    evenly: bool = False


def placed(overload: Overload, rules: Iterable[PlacementRule], values: tuple[Any, ...]) -> list[Placed]:
    """Every way to place one call, with ``R``, ``S(1)``, ``P(sum)`` and ``P(avg)`` alone; whole tensors first.

    Args:
        overload: that is called.
        rules: of it.
        values: of all arguments; in the place of tensors may be what has their ``shape``.
    """
    tensors = {i: values[i] for i in overload.tensor_positions if values[i] is not None}
    whole = Placed(dict.fromkeys(tensors, "R"), ("R",) * len(overload.schema.returns))
    found = {_key(whole): whole}
    for rule in rules:
        if not holds(overload, rule, values):
            continue
        named = {i: rule.arguments[overload.names[i]] for i in tensors if overload.names[i] in rule.arguments}
        if len(named) != len(rule.arguments) or any(_is_empty_list(tensors[i]) for i in named):
            continue  # an optional tensor is left out
        for one in _concrete(whole, named, rule, tensors):
            sizes = list(_shared_sizes(one, tensors))
            if all(size > 1 for size in sizes) and (rule.evenly or all(size == sizes[0] for size in sizes)):
                found.setdefault(_key(one), one)
    return list(found.values())


def _key(one: Placed) -> tuple[Any, ...]:
    return (*one.arguments.items(), *one.results)


def holds(overload: Overload, rule: PlacementRule, values: tuple[Any, ...]) -> bool:
    """Whether a call is of the kind that a rule is for."""
    for condition, expected in rule.conditions.items():
        name, _, what = condition.partition(".")
        value = values[overload.names.index(name)]
        if what == "dim":
            value = None if value is None else len(value.shape)
        elif what:
            dim = int(what[len("size(") : -1])
            value = value.shape[dim] if value is not None and dim < len(value.shape) else None
        elif isinstance(value, (list, tuple)):
            value = list(value)
        if value != expected or (type(value) is bool) != (type(expected) is bool):
            return False
    return True


def _concrete(
    whole: Placed, named: Mapping[int, str], rule: PlacementRule, tensors: Mapping[int, Any]
) -> Iterator[Placed]:
    """A rule, with every dimension that ``S(:)`` and ``S(...)`` may stand for."""
    if BROADCAST in named.values():
        spread = [tensors[i].shape for i, placement in named.items() if placement == BROADCAST]
        count = max(map(len, spread))
        for back in range(count, 0, -1):
            arguments = dict(whole.arguments)
            for i, placement in named.items():
                shape = tensors[i].shape
                has_it = len(shape) >= back and shape[-back] != 1
                arguments[i] = placement if placement != BROADCAST else f"S({len(shape) - back})" if has_it else "R"
            results = tuple(f"S({count - back})" if one == BROADCAST else one for one in rule.results)
            if any(placement.startswith("S") for placement in arguments.values()):
                yield Placed(arguments, results, rule.evenly)
        return
    free = {i: match for i, placement in named.items() if (match := _FREE.fullmatch(placement))}
    dims = min((len(_first(tensors[i]).shape) - int(match[1] or 0) for i, match in free.items()), default=1)
    for dim in range(dims):
        arguments = {**whole.arguments, **named, **dict.fromkeys(free, f"S({dim})")}
        results = tuple(f"S({dim})" if _FREE.fullmatch(one) else one for one in rule.results)
        yield Placed(arguments, results, rule.evenly)


def _shared_sizes(one: Placed, tensors: Mapping[int, Any]) -> Iterator[Any]:
    """The sizes that are shared out."""
    for i, placement in one.arguments.items():
        match = _ONE.fullmatch(placement)
        if match:
            for tensor in tensors[i] if isinstance(tensors[i], (list, tuple)) else (tensors[i],):
                yield tensor.shape[int(match[1])] if int(match[1]) < len(tensor.shape) else 0


def _is_empty_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and not value


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) else value
