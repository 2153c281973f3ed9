"""A sharded reduction on every process, each of which is a thread of this one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from opwheel import LocalShard
from opwheel.dispatch.overload import Overload, as_tuple
from opwheel.dispatch.placements import checked_reduction, holds
from torch import Tensor

from .parts import is_joined_to, parts_of, shared_dim

_SECONDS = 60
"""After which a process that waits for the others is alone: it exchanges more often than they do."""


class _Exchange:
    """What the processes pass to one another."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=_SECONDS)
        self._passed: list[Tensor] = [torch.empty(0)] * count

    def all_reduce(self, tensor: Tensor, op: str, rank: int) -> Tensor:
        self._passed[rank] = tensor
        self._barrier.wait()
        every = torch.stack(self._passed)
        self._barrier.wait()
        return every.amax(0) if op == "max" else every.sum(0)

    def abort(self) -> None:
        """Let the others not wait for a process that has failed."""
        self._barrier.abort()


def wrong_results_of_shards(
    overload: Overload, values: tuple[Any, ...], whole: tuple[Tensor, ...], count: int, rtol: float = 1e-9
) -> list[int]:
    """Which results of an operator's sharded reduction are not what one call gives.

    Args:
        overload: that has one.
        values: of all arguments; calls for which it is not declared have no wrong results.
        whole: what one call gives.
        count: of processes. Parts have different sizes, and some are empty, where the dimension is no multiple of it.
        rtol: of the comparison.
    """
    reduction = checked_reduction(overload)
    named = {overload.names.index(name): placement for name, placement in reduction.arguments.items()}
    first = next(iter(named))
    if not isinstance(values[first], Tensor) or not holds(overload, reduction, values):
        return []
    dim = shared_dim(_of_dimensions(named[first], values[first]))
    assert dim is not None  # checked where it is declared
    size = values[first].shape[dim]
    exchange, generator = _Exchange(count), torch.Generator().manual_seed(0)

    def spread(i: int, value: Any) -> list[Any]:
        if not isinstance(value, Tensor):
            return [value] * count
        return parts_of(value, _of_dimensions(named.get(i, "R"), value), count, generator)

    given = list(zip(*(spread(i, value) for i, value in enumerate(values)), strict=True))

    def compute(rank: int) -> tuple[Tensor, ...]:
        offset = min(rank * -(-size // count), size)
        shard = LocalShard(size, offset, count, partial(exchange.all_reduce, rank=rank))
        try:
            with torch.no_grad():
                return as_tuple(overload.call(partial(overload.operator.sharded.local, shard), given[rank]))
        except BaseException:
            exchange.abort()
            raise

    with ThreadPoolExecutor(count) as processes:
        results = list(_results([processes.submit(compute, rank) for rank in range(count)]))
    return [
        k
        for k, (one, placement) in enumerate(zip(whole, reduction.results, strict=True))
        if not is_joined_to([mine[k] for mine in results], _of_dimensions(placement, one), one, rtol)
    ]


def _results(calls: list[Any]) -> Iterator[tuple[Tensor, ...]]:
    """What the processes give; raises what one of them has raised, and not that others waited for it."""
    failed = [error for call in calls if (error := call.exception()) is not None]
    for error in failed:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    if failed:
        raise RuntimeError("a sharded reduction calls all_reduce more often on one process than on others")
    return (call.result() for call in calls)


def _of_dimensions(placement: str, tensor: Tensor) -> str:
    """``S(-1)`` as the dimension of a tensor that it is."""
    return f"S({tensor.dim() + int(placement[2:-1])})" if placement.startswith("S(-") else placement
