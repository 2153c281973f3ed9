"""DTensor: which placements an element-wise operator computes on without communication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from ...overload import Overload
from ..rule import Sharding


def shardings(overload: Overload, specs: Mapping[int, Any], linear: tuple[tuple[str, ...], ...]) -> list[Sharding]:
    """What is possible for arguments with these specs, by position."""

    def sharding(result: Placement, inputs: dict[int, Placement]) -> Sharding:
        return [result] * len(overload.schema.returns), [inputs.get(i) for i in range(len(overload.names))]

    shape = torch.broadcast_shapes(*(spec.shape for spec in specs.values()))
    possible = [sharding(Replicate(), dict.fromkeys(specs, Replicate()))]
    for dim, size in enumerate(shape):
        if size != 1:
            inputs = {i: _shard(spec, dim - len(shape), size) for i, spec in specs.items()}
            possible.append(sharding(Shard(dim), inputs))
    for names in linear:
        inputs = {i: Partial() if overload.names[i] in names else Replicate() for i in specs}
        possible.append(sharding(Partial(), inputs))
    return possible


def _shard(spec: Any, dim_from_the_end: int, size: int) -> Placement:
    """How an operand is placed when the result is sharded along a dimension: broadcast ones stay whole."""
    dim = spec.ndim + dim_from_the_end
    return Shard(dim) if dim >= 0 and spec.shape[dim] == size else Replicate()
