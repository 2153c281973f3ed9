"""Calls on DTensors that are sharded along the dimension that an operator reduces (:class:`ShardedReduction`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from .._torch import private
from .overload import Overload, as_tuple
from .placements import Placed, PlacementRule, checked_reduction, holds, placed
from .placements.torch_placements import placement
from .sharded_reduction import LocalShard, ReduceOp

_Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def sharded_call(overload: Overload, rules: Sequence[PlacementRule]) -> _Call:
    """What computes the calls of an overload that has a sharded reduction (:func:`private.register_call`).

    Args:
        overload: that is called.
        rules: its placement rules, for the other dimensions of a mesh.
    """
    reduction = checked_reduction(overload)
    named = {overload.names.index(name): text for name, text in reduction.arguments.items()}
    leading = next(iter(named))
    local = overload.operator.sharded.local

    @torch.no_grad()  # below Autograd, where moving a DTensor would record a gradient of its own
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = overload.bind(args, kwargs)
        first = values[leading]
        if not isinstance(first, DTensor) or not holds(overload, reduction, values):
            return NotImplemented
        axes = _axes(first, placement(named[leading], first.dim()))
        values = tuple(_with_integers_on_mesh(value, first) for value in values)
        if not axes or not _are_on_mesh(overload.all_tensors(values), first):
            return NotImplemented
        wholes = private.results_of(overload.op, *overload.unbind(values))  # first: it refuses what does not fit
        ways = _ways_of_other_dimensions(overload, rules, values, first, axes)
        shard = _local_shard(first, axes)
        given = []
        for i, value in enumerate(values):
            if isinstance(value, DTensor):
                texts = [named.get(i, "R") if axis in axes else way.arguments[i] for axis, way in enumerate(ways)]
                value = value.redistribute(placements=[placement(text, value.dim()) for text in texts]).to_local()
            given.append(value)
        results = as_tuple(overload.call(partial(local, shard), tuple(given)))
        made = []
        for k, whole in enumerate(wholes):
            texts = [reduction.results[k] if axis in axes else way.results[k] for axis, way in enumerate(ways)]
            placements = [placement(text, len(whole.shape)) for text in texts]
            sizes = {"shape": whole.shape, "stride": whole.stride}
            made.append(DTensor.from_local(results[k], first.device_mesh, placements, run_check=False, **sizes))
        return tuple(made) if len(made) > 1 else made[0]

    return call


def _axes(first: DTensor, along: Placement) -> tuple[int, ...]:
    """The dimensions of the mesh along which the reduced dimension is sharded."""
    return tuple(axis for axis, one in enumerate(first.placements) if one == along)


def _with_integers_on_mesh(value: Any, first: DTensor) -> Any:
    """A tensor of integers that is none of DTensor's, such as targets, is taken to be the same on every process.

    As PyTorch's own ``loss_parallel`` takes them; other tensors are refused.
    """
    if isinstance(value, Tensor) and not isinstance(value, DTensor) and not value.is_floating_point():
        mesh = first.device_mesh
        return DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return value


def _are_on_mesh(tensors: Sequence[Tensor], first: DTensor) -> bool:
    return all(isinstance(one, DTensor) and one.device_mesh == first.device_mesh for one in tensors)


def _ways_of_other_dimensions(
    overload: Overload,
    rules: Sequence[PlacementRule],
    values: tuple[Any, ...],
    first: DTensor,
    axes: tuple[int, ...],
) -> list[Placed]:
    """For each dimension of the mesh the rule by which it is shared out: the one that moves the fewest elements.

    Those in ``axes`` have the reduction's placements in the place of the rule's. What needs parts of the same size is
    left out.
    """
    possible = [one for one in placed(overload, rules, values) if not one.evenly]

    def moved(way: Placed, axis: int) -> int:
        given = [(values[i], text) for i, text in way.arguments.items()]
        return sum(int(tensor.numel()) for tensor, text in given if tensor.placements[axis] != placement(text))

    return [
        possible[0] if axis in axes else min(possible, key=partial(moved, axis=axis))
        for axis in range(first.device_mesh.ndim)
    ]


def _local_shard(first: DTensor, axes: tuple[int, ...]) -> LocalShard:
    """The part of the reduced dimension that this process has."""
    mesh = first.device_mesh
    along = first.placements[axes[0]]
    assert isinstance(along, Shard)
    size = whole = first.shape[along.dim]
    offset, count = 0, 1
    for axis in axes:  # in the order in which DTensor shares it out
        each = -(-size // mesh.size(axis))
        begin = min(mesh.get_local_rank(axis) * each, size)
        offset, size, count = offset + begin, min(each, size - begin), count * mesh.size(axis)

    def all_reduce(tensor: Tensor, op: ReduceOp) -> Tensor:
        placements = [Partial(op) if axis in axes else Replicate() for axis in range(mesh.ndim)]
        mine = DTensor.from_local(tensor, mesh, placements, run_check=False)
        return mine.redistribute(placements=[Replicate()] * mesh.ndim).to_local()

    return LocalShard(whole, offset, count, all_reduce)
