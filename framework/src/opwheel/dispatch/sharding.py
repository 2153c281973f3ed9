"""DTensor: which placements an operator computes on without communication."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.distributed.tensor.experimental import register_sharding

from .overload import Overload
from .rules import Sharding


def register(overloads: Iterable[Overload]) -> None:
    """Register a rule for every overload but out variants, for which DTensor has no rules unless they are its own."""
    for overload in overloads:
        if not overload.is_out and overload.tensor_positions:
            register_sharding(overload.op)(sharding_rule(overload))


def sharding_rule(overload: Overload) -> Callable[..., list[Sharding]]:
    """The rule of one overload: it is called with the specs of the arguments and lists what is possible."""

    def rule(*args: Any, **kwargs: Any) -> list[Sharding]:
        values = overload.bind(args, kwargs)
        specs = {i: values[i] for i in overload.tensor_positions if values[i] is not None}
        possible: list[Sharding] = overload.rule.shardings(overload, specs)
        return possible

    return rule
