"""Means over the last dimension: of whole rows, and of rows whose parts are on several processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from opwheel import LocalShard, ShardedReduction
from torch import Tensor

Means = Callable[..., tuple[Tensor, ...]]
"""The means of tensors over their last dimension, which stays, with size 1: in one exchange, if there is any."""


def row_means(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The means of whole rows."""
    return tuple(one.mean(-1, keepdim=True) for one in tensors)


def sum_of_rows(x: Tensor) -> Tensor:
    """The sum over all dimensions but the last, which may be empty."""
    return x.reshape(x.shape[:-1].numel(), x.shape[-1]).sum(0)


def _means_of_shards(shard: LocalShard, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The means of rows of which every process has a part: one number a row and tensor is exchanged."""
    sums = shard.all_reduce(torch.cat([one.sum(-1, keepdim=True) for one in tensors], -1))
    means = sums / shard.size
    return tuple(means[..., i : i + 1] for i in range(len(tensors)))


def sharded_rows(placements: str, compute: Callable[..., Any]) -> ShardedReduction:
    """What computes on parts of rows.

    Args:
        placements: as :class:`opwheel.ShardedReduction` has them.
        compute: called with the :data:`Means` to use, and then as the operator, with tensors of one dtype.
    """

    def local(shard: LocalShard, *args: Any) -> Any:
        dtypes = list(dict.fromkeys(one.dtype for one in args if isinstance(one, Tensor)))
        if len(dtypes) > 1:
            given = " and ".join(map(str, dtypes))
            raise RuntimeError(f"the tensors are {given}, expected one dtype; convert them with .to(...)")
        return compute(partial(_means_of_shards, shard), *args)

    return ShardedReduction(placements, local)
