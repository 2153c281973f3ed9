"""How an operator computes where a dimension that it reduces is sharded over processes: what authors declare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor

ReduceOp = Literal["sum", "max"]


@dataclass(frozen=True)
class LocalShard:
    """The part of the sharded dimension that one process has, and how it exchanges numbers with the others.

    Args:
        size: of the whole dimension.
        offset: where this process's part begins. Parts may have different sizes, and may be empty.
        count: of the processes that have a part.
        exchange: what :meth:`all_reduce` calls.
    """

    size: int
    offset: int
    count: int
    exchange: Callable[[Tensor, ReduceOp], Tensor]

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> Tensor:
        """The sum, or the largest, of what all these processes pass: the same on each of them.

        All processes have to call it as often, with tensors of the same shape.
        """
        return self.exchange(tensor, op)


class ShardedReduction(NamedTuple):
    """What an operator computes on DTensors that are sharded along the dimension that it reduces.

    Without it DTensor gathers that dimension on every process. With it each computes on its own part, and exchanges
    only what ``local`` says::

        def _rms_norm_of_shards(shard, x, weight, eps):
            mean = shard.all_reduce(x.pow(2).sum(-1, keepdim=True)) / shard.size
            return x * torch.rsqrt(mean + eps) * weight

        Operator("rms_norm", ..., sharded=ShardedReduction("x=S(-1), weight=S(0) -> S(-1)", _rms_norm_of_shards))

    Args:
        placements: of the arguments and results, as :class:`Operator` has them in ``placements``; dimensions may be
            counted from the end. The first argument decides: where it is sharded along that dimension, ``local``
            is called, and the other arguments are brought to their placements first; those that are not named are whole
            on every process. Optional ones may be left out. ``if name=value`` says for which calls it is.
        local: called with a :class:`LocalShard` and then with the schema's arguments, tensors as this process has them.
            It gives this process's part of each result. Gradients are not recorded in it: those of the operator are
            its ``derivatives``, and the operators that these call may have a sharded reduction of their own.
    """

    placements: str
    local: Callable[..., Any]
