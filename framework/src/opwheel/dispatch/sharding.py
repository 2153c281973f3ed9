"""DTensor: which placements an element-wise operator computes on without communication."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from .overload import Overload

Sharding = tuple[list[Placement | None], list[Placement | None]]


def register(overloads: Iterable[Overload]) -> None:
    """Register a rule for every functional and in-place overload. DTensor has no rules for out variants of others."""
    for overload in overloads:
        if not overload.is_out:
            register_sharding(overload.op)(sharding_rule(overload))


def sharding_rule(overload: Overload) -> Callable[..., list[Sharding]]:
    """The rule of one overload: it is called with the specs of the arguments and lists what is possible."""
    names, tensors = overload.arguments, overload.tensor_arguments
    result_count = len(overload.schema.returns)

    def sharding(result: Placement, inputs: dict[str, Placement]) -> Sharding:
        return [result] * result_count, [inputs.get(name) for name in names]

    def rule(*args: Any) -> list[Sharding]:
        specs = {name: spec for name, spec in zip(names, args, strict=True) if name in tensors}
        shape = torch.broadcast_shapes(*(spec.shape for spec in specs.values()))
        possible = [sharding(Replicate(), dict.fromkeys(specs, Replicate()))]
        for dim, size in enumerate(shape):
            if size != 1:
                inputs = {name: _shard(spec, dim - len(shape), size) for name, spec in specs.items()}
                possible.append(sharding(Shard(dim), inputs))
        for linear in overload.operator.linear:
            inputs = {name: Partial() if name in linear else Replicate() for name in specs}
            possible.append(sharding(Partial(), inputs))
        return possible

    return rule


def _shard(spec: Any, dim_from_the_end: int, size: int) -> Placement:
    """How an operand is placed when the result is sharded along a dimension: broadcast ones stay whole."""
    dim = spec.ndim + dim_from_the_end
    return Shard(dim) if dim >= 0 and spec.shape[dim] == size else Replicate()
