"""What each of several processes has of a tensor, and what their results are together."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

_SHARD = re.compile(r"S\((\d+)\)")


def shared_dim(placement: str) -> int | None:
    """The dimension that a placement shares out."""
    match = _SHARD.fullmatch(placement)
    return int(match[1]) if match else None


def parts_of(tensor: Tensor, placement: str, count: int, generator: torch.Generator) -> list[Tensor]:
    """What each process has.

    Args:
        tensor: the whole.
        placement: ``R``, ``S(1)``, ``P(sum)`` or ``P(avg)``.
        count: of the processes. As DTensor does it, the first ones get more where a size is no multiple of it, and the
            last ones may get nothing.
        generator: of the numbers that partial sums differ by: as large as those of the tensor, and of both signs.
    """
    dim = shared_dim(placement)
    if dim is not None:
        chunks = list(tensor.chunk(count, dim))
        empty = tensor.narrow(dim, 0, 0)
        return [one.clone() for one in (*chunks, *[empty] * (count - len(chunks)))]
    if placement == "R":
        return [tensor.clone() for _ in range(count)]
    factor = count if placement == "P(avg)" else 1
    scale = _largest(tensor) + 1
    noise = [torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) * scale for _ in range(count - 1)]
    first = [one + tensor / count for one in noise]
    whole = tensor * 1
    last = torch.where(whole.isfinite(), whole - sum(first, torch.zeros_like(whole)), whole)
    return [one * factor for one in (*first, last)]


def is_joined_to(parts: Sequence[Tensor], placement: str, whole: Tensor, rtol: float = 1e-9) -> bool:
    """Whether results of the processes, placed like this, are the whole result.

    Args:
        parts: what each process has computed.
        placement: of the result.
        whole: what one call gives.
        rtol: of the comparison, relative to the largest element.
    """
    dim = shared_dim(placement)
    if dim is not None:
        if any(one.dim() <= dim for one in parts) or whole.dim() <= dim:
            return False
        if not _are_chunks([one.shape[dim] for one in parts], whole.shape[dim]):
            return False
        others = [[size for i, size in enumerate(one.shape) if i != dim] for one in parts]
        return all(one == others[0] for one in others) and _are_close(torch.cat(list(parts), dim), whole, rtol)
    if placement == "R":
        return all(_are_close(one, whole, rtol) for one in parts)
    if any(one.shape != whole.shape for one in parts) or not whole.is_floating_point():
        return False
    total = sum(parts, torch.zeros_like(whole))
    return _are_close(total / len(parts) if placement == "P(avg)" else total, whole, rtol, max(map(_largest, parts)))


def _are_chunks(sizes: Sequence[int], whole: int) -> bool:
    """Whether sizes are those that DTensor takes parts to have."""
    each = -(-whole // len(sizes))
    return list(sizes) == [max(0, min(each, whole - i * each)) for i in range(len(sizes))]


def _are_close(one: Tensor, other: Tensor, rtol: float, largest: float = 0.0) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not other.is_floating_point():
        return torch.equal(one, other)
    scale = max(largest, _largest(other))
    return torch.allclose(one, other, rtol=rtol, atol=rtol * max(scale, 1e-3), equal_nan=True)


def _largest(tensor: Tensor) -> float:
    """The largest absolute value, but infinity."""
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0
