"""A call on the parts that every process has, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from opwheel.dispatch.overload import Overload, tensors_in
from torch import Tensor
from torch.utils import _pytree as pytree

from .parts import is_joined_to, parts_of

Compute = Callable[[Overload, tuple[Any, ...]], tuple[Any, ...]]
"""Gives the results of a call: the operator's kernel, or its reference."""
PLACEMENTS_OF_PARTIAL = ("P(sum)", "P(avg)")


def outcome(overload: Overload, compute: Compute, values: tuple[Any, ...]) -> list[Tensor]:
    """The results of a call, and then what it has written to; the values stay as they are."""
    given = pytree.tree_map_only(Tensor, torch.clone, values)
    with torch.no_grad():
        results = compute(overload, given)
    return [*results, *tensors_in(given[i] for i in overload.written)]


def call_on_parts(
    overload: Overload,
    compute: Compute,
    values: tuple[Any, ...],
    arguments: Mapping[int, str],
    count: int,
    seed: int = 0,
) -> list[tuple[Tensor, ...]]:
    """For each result, and then for each tensor that is written to, what each process has.

    Args:
        overload: that is called.
        compute: how.
        values: of all arguments.
        arguments: the placement of each argument that is or contains tensors, by position.
        count: of processes.
        seed: of the numbers that partial sums differ by.
    """
    generator = torch.Generator().manual_seed(seed)

    def spread(value: Any, placement: str) -> list[Any]:
        if isinstance(value, (list, tuple)):
            return [list(one) for one in zip(*(spread(v, placement) for v in value), strict=True)] or [[]] * count
        return parts_of(value, placement, count, generator) if isinstance(value, Tensor) else [value] * count

    each = [spread(value, arguments.get(i, "R")) for i, value in enumerate(values)]
    outcomes = [outcome(overload, compute, tuple(mine)) for mine in zip(*each, strict=True)]
    return list(zip(*outcomes, strict=True))


def wrong_results(
    overload: Overload,
    compute: Compute,
    values: tuple[Any, ...],
    arguments: Mapping[int, str],
    results: tuple[str, ...],
    count: int,
    rtol: float = 1e-9,
) -> list[int]:
    """Which results, and then tensors that are written to, are not what one call gives.

    Args:
        overload: that is called.
        compute: how.
        values: of all arguments.
        arguments: the placement of each argument that is or contains tensors, by position.
        results: the placements of the results.
        count: of processes.
        rtol: of the comparison.
    """
    whole = outcome(overload, compute, values)
    written = [arguments.get(i, "R") for i in overload.written for _ in tensors_in([values[i]])]
    parts = call_on_parts(overload, compute, values, arguments, count)
    claimed = (*results, *written)
    return [
        i
        for i, (mine, placement, one) in enumerate(zip(parts, claimed, whole, strict=True))
        if not is_joined_to(mine, placement, one, rtol)
    ]
