"""Strides of new results: contiguous ones, or those that all tensors have (``Operator(memory_format=...)``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..overload import Overload


def shared_strides(overload: Overload, values: tuple[Any, ...]) -> tuple[torch.Size, tuple[int, ...]] | None:
    """Shape and strides of all tensors, where results of that shape have these strides; None where all are contiguous.

    The twin of ``share_strides()`` in ``opwheel/views.h``.
    """
    if overload.operator.memory_format is not torch.preserve_format:
        return None
    tensors = overload.all_tensors(values)
    if not tensors or tensors[0].is_contiguous():
        return None
    shape, strides = tensors[0].shape, tensors[0].stride()
    if any(one.shape != shape or one.stride() != strides for one in tensors):
        return None
    from ..tensor_iterator import is_non_overlapping_and_dense  # not imported with the library

    return (shape, strides) if is_non_overlapping_and_dense(shape, strides) else None


def empty_result(result: Tensor, shared: tuple[torch.Size, tuple[int, ...]] | None) -> Tensor:
    """A new tensor of a result's shape and dtype."""
    if shared is not None and result.shape == shared[0]:
        return result.new_empty_strided(*shared)
    return torch.empty_like(result, memory_format=torch.contiguous_format)


def in_order(result: Tensor, shared: tuple[torch.Size, tuple[int, ...]] | None) -> Tensor:
    """The result, or a copy that has the strides."""
    if shared is None or result.shape != shared[0]:
        return result.contiguous()
    return result if result.stride() == shared[1] else result.new_empty_strided(*shared).copy_(result)
