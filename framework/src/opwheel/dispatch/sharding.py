"""DTensor: which placements an operator computes on without communication."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any

from torch.distributed.tensor import DTensor, Placement, Shard

from .._torch import private
from .overload import TENSOR_KINDS, Overload
from .placements import Placed, PlacementRule, placed, placement_rules
from .placements.torch_placements import placement
from .sharded_calls import sharded_call


def register(overloads: Iterable[Overload], library: Any, target: Any) -> None:
    """Register what is known of every overload's placements.

    Not those of out variants that return nothing, for which DTensor has no way to say where the result is: it refuses
    them by name.

    Args:
        overloads: of a library.
        library: that they belong to.
        target: the ``torch.library.Library`` with which registrations of calls end.
    """
    for overload in overloads:
        if not overload.tensor_positions or (overload.name.endswith(".out") and not overload.schema.returns):
            continue
        numbers = [i for i, a in enumerate(overload.schema.arguments) if str(a.real_type) not in TENSOR_KINDS]
        count = len(overload.arguments)
        rules = placement_rules(overload, library)
        private.register_placements(
            overload.op, chooser(overload, rules), min(numbers, default=count), overload.names[count:]
        )
        if overload.operator.sharded is not None and overload.name == overload.operator.name:
            private.register_call(target, overload.op, sharded_call(overload, rules), DTensor)


def chooser(overload: Overload, rules: Sequence[PlacementRule]) -> Callable[..., Any]:
    """What DTensor asks for the placements of a call (:func:`private.register_placements`)."""

    def choose(mesh: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = overload.bind(args, kwargs)
        # In the order of the call, which need not be that of the schema.
        order = [*range(len(args)), *(overload.names.index(name) for name in kwargs)]
        tensors = [(i, spec) for i in order if i in overload.tensor_positions for spec in _specs(values[i])]
        possible = [
            one
            for one in placed(overload, rules, values)
            if _is_worth_trying(one, values, mesh) and _fits(one, values, mesh)
        ]
        lists = [[*map(placement, one.results), *(placement(one.arguments[i]) for i, _ in tensors)] for one in possible]
        even = {(i, dim) for one in possible if one.evenly for i, dim in _shared(one)}

        def is_right(inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
            for (i, given), spec in zip(tensors, inputs, strict=True):
                if _stays(overload, i) and spec.placements != given.placements:
                    return False
                for dim in {p.dim for p in spec.placements if isinstance(p, Shard) and (i, p.dim) in even}:
                    parts = prod(size for size, p in zip(mesh, spec.placements, strict=True) if p == Shard(dim))
                    if given.shape[dim] % parts:
                        return False
            if overload.is_in_place or overload.is_out:
                return bool(outputs[0].placements == values[overload.written[0]].placements)
            return True

        _check_what_stays(overload, lists, tensors)
        return lists, is_right

    return choose


def _stays(overload: Overload, i: int) -> bool:
    """Whether an argument has to be used as it is placed.

    What is written to would be written into a copy, and DTensor moves no keyword-only tensors: it would use the parts
    that there are for others.
    """
    return i in overload.written or i >= len(overload.arguments)


def _check_what_stays(overload: Overload, lists: list[list[Placement]], tensors: list[Any]) -> None:
    """Refuse a call for which no rule leaves what has to stay where it is.

    Raises:
        RuntimeError: naming the argument, how it is placed, and how it may be placed.
    """
    count = len(overload.schema.returns)
    positions = [k for k, (i, _) in enumerate(tensors) if _stays(overload, i)]
    ways = {tuple(one[count + k] for k in positions) for one in lists}
    for given in zip(*(tensors[k][1].placements for k in positions), strict=True):
        if given not in ways:
            names = [overload.names[tensors[k][0]] for k in positions]
            are = ", ".join(f"'{name}' is {p}" for name, p in zip(names, given, strict=True))
            others = "; or as ".join(sorted(str(way) for way in ways if not all(p.is_replicate() for p in way)))
            why = "is written to" if overload.written else "is keyword-only, which DTensor leaves where it is,"
            shown = ", ".join(map(repr, dict.fromkeys(names)))
            also = f", or placed as {others}" if others else ""
            raise RuntimeError(
                f"{overload.name}: {shown} {why} and must be whole on every process (Replicate){also}; {are}"
            )


def _is_worth_trying(one: Placed, values: tuple[Any, ...], mesh: tuple[int, ...]) -> bool:
    """Whether a way to place a call is not one of many sums over processes, of which there are none.

    DTensor looks at every combination of as many of them as the mesh has dimensions.
    """
    if len(mesh) == 1:
        return True
    for i, text in one.arguments.items():
        if text.startswith("P") and not any(p.is_partial() for spec in _specs(values[i]) for p in spec.placements):
            return False
    return True


def _fits(one: Placed, values: tuple[Any, ...], mesh: tuple[int, ...]) -> bool:
    """Whether parts have the same size where they have to."""
    if not one.evenly:
        return True
    sizes = [spec.shape[dim] for i, dim in _shared(one) for spec in _specs(values[i])]
    return all(any(size % count == 0 for count in mesh) for size in sizes)


def _shared(one: Placed) -> Iterator[tuple[int, int]]:
    for i, text in one.arguments.items():
        if text.startswith("S"):
            yield i, int(text[2:-1])


def _specs(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else () if value is None else (value,)
