"""vmap: the batch dimension goes to the front of every batched input, and one call computes the whole batch."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ...overload import Overload
from ...tensor_iterator import check_output, compute_dtype, overwrite


def functional(overload: Overload, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> Any:
    """One call of a functional overload for the whole batch: its results and their batch dimensions."""
    dtype = _example_dtype(args, in_dims)
    results = overload.op(*_aligned(args, in_dims))
    if isinstance(results, Tensor):
        return results.to(dtype), 0
    return tuple(result.to(dtype) for result in results), (0,) * len(results)


def in_place(overload: Overload, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> Any:
    """One call of the functional overload, whose result then overwrites the first argument."""
    if in_dims[0] is None:
        raise RuntimeError(
            f"vmap: {overload.name} would have to write a batch of results into '{overload.arguments[0]}', which "
            "has no batch dimension; use the functional variant, or pass a batched tensor"
        )
    target, dim = args[0], in_dims[0]
    # A copy goes in: a gradient may need what is overwritten below.
    result = overload.functional.op(*_aligned((target.clone(), *args[1:]), in_dims)).movedim(0, dim)
    check_output(overload, target, result.shape, _example_dtype(args, in_dims), result.device)
    overwrite(overload, target, result)
    return target, dim


def _example_dtype(args: tuple[Any, ...], in_dims: tuple[int | None, ...]) -> torch.dtype:
    """The dtype of one example's result: tensors without dimensions do not count where others have some."""
    ranks = [(value, _rank(value, dim)) for value, dim in zip(args, in_dims, strict=True) if isinstance(value, Tensor)]
    counting = [value.dtype for value, rank in ranks if rank > 0] or [value.dtype for value, _ in ranks]
    return reduce(torch.promote_types, counting)


def _rank(value: Tensor, dim: int | None) -> int:
    """Dimensions that one example has."""
    return value.dim() - (dim is not None)


def _aligned(args: tuple[Any, ...], in_dims: tuple[int | None, ...]) -> list[Any]:
    """Batch dimensions first, and room for broadcasting between them and each input's own dimensions.

    A batch of numbers has a dimension, and therefore counts for the dtype where its numbers would not, and counts more
    than a number without a batch. Where all examples are numbers it becomes what they promote to. Elsewhere float64
    becomes float32 where the examples are computed in that; whatever else it promotes, the result is rounded once to
    what an example's would be.
    """
    pairs = list(zip(args, in_dims, strict=True))
    rank = max(_rank(value, dim) for value, dim in pairs if isinstance(value, Tensor))
    dtype = _example_dtype(args, in_dims)
    aligned = []
    for value, dim in pairs:
        if dim is None:
            aligned.append(value)
            continue
        front = value.movedim(dim, 0)
        if rank == 0:
            front = front.to(dtype)
        elif front.dtype is torch.float64:
            front = front.to(compute_dtype(dtype))
        room = (1,) * (rank - (front.dim() - 1))
        aligned.append(front.reshape(front.shape[:1] + room + front.shape[1:]))
    return aligned
