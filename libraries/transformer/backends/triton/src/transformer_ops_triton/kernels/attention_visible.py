"""Which keys the queries of attention see: what the arguments say about it, checked, and as kernels take it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .arguments import check_device, check_on_device, check_position_ids, outer_strides, refuse


class Visible(NamedTuple):
    """What kernels are given.

    Args:
        ids: the queries' positions where they are given.
        ids_stride: from one batch to the next; 0 where batches share them.
        mask: bytes of bool, or what is added to scores.
        mask_strides: those of batches, heads, queries and keys; 0 where all share it.
        query_starts: where sequences begin that follow each other in one batch, and the last one ends.
        key_starts: the same of keys.
        window: how many keys a causal query sees; 0 for all up to its own position.
        sequences: of one batch, or batches.
        queries: of the longest sequence.
        keys: the same.
    """

    ids: Tensor | None
    ids_stride: int
    mask: Tensor | None
    mask_strides: tuple[int, ...]
    query_starts: Tensor | None
    key_starts: Tensor | None
    window: int
    sequences: int
    queries: int
    keys: int

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        is_causal: bool,
        cos: Tensor | None,
        position_ids: Tensor | None,
        attn_mask: Tensor | None,
        window_size: int | None,
        cu_seqlens_q: Tensor | None,
        cu_seqlens_k: Tensor | None,
    ) -> Visible:
        """Check the arguments of attention.

        Raises:
            RuntimeError: one does not fit.
        """
        ids, ids_stride = _ids(position_ids, q, k, is_causal, cos)
        mask, mask_strides = _mask(attn_mask, q, k)
        if window_size is not None and not is_causal:
            refuse("window_size", "is given, but without 'is_causal' queries see all keys; pass None")
        if window_size is not None and window_size < 1:
            refuse("window_size", f"is {window_size}, expected at least 1, or None")
        sizes = q.shape[0], q.shape[1], k.shape[1]
        starts = of_keys = None
        if cu_seqlens_q is not None:
            starts, of_keys = _sequences(q, k, cu_seqlens_q, cu_seqlens_k)
            if attn_mask is not None:
                refuse("attn_mask", "is given, and so is 'cu_seqlens_q'; pass one of them")
            if cos is not None:
                refuse("cos", "is given, and so is 'cu_seqlens_q'; turn queries and keys with rope() first")
            if is_causal:
                _check_causal(starts, of_keys, ids)
            sizes = len(starts) - 1, _longest(starts), _longest(of_keys)
        elif cu_seqlens_k is not None:
            refuse("cu_seqlens_k", "is given, but 'cu_seqlens_q' is None; pass both")
        return cls(ids, ids_stride, mask, mask_strides, starts, of_keys, window_size or 0, *sizes)

    @property
    def tensors(self) -> tuple[object, ...]:
        """Arguments of kernels."""
        return self[:6]

    @property
    def constants(self) -> dict[str, object]:
        """What kernels are compiled for."""
        return {"WINDOW": self.window}


def _ids(given: Tensor | None, q: Tensor, k: Tensor, is_causal: bool, cos: Tensor | None) -> tuple[Tensor | None, int]:
    if given is None:
        return None, 0
    if not is_causal:
        refuse("position_ids", "is given, but without 'is_causal' queries see all keys; pass None")
    if cos is not None:
        refuse("position_ids", "is given, and so is 'cos'; turn queries and keys with rope() first")
    check_position_ids(given, q, q.shape[0], q.shape[1], k.shape[1], "k")
    return given.contiguous(), q.shape[1] if given.shape[:-1].numel() > 1 else 0


def _mask(given: Tensor | None, q: Tensor, k: Tensor) -> tuple[Tensor | None, tuple[int, ...]]:
    if given is None:
        return None, (0, 0, 0, 0)
    check_device(given, "attn_mask", q, "q")
    if given.dtype not in (torch.bool, q.dtype):
        refuse("attn_mask", f"is {given.dtype}, expected bool or the dtype of 'q', {q.dtype}; convert it with .to(...)")
    sizes = q.shape[0], q.shape[2], q.shape[1]
    own = given.shape[:-1]
    if (
        given.dim() not in (2, 3, 4)
        or given.shape[-1] != k.shape[1]
        or any(size not in (1, whole) for size, whole in zip(own, sizes[3 - len(own) :], strict=True))
    ):
        refuse(
            "attn_mask",
            f"has shape {tuple(given.shape)}, expected ({sizes[0]} or 1, {sizes[1]} or 1, {sizes[2]} or 1, "
            f"{k.shape[1]}), or the last two or three of these",
        )
    mask = given.view(torch.uint8) if given.dtype == torch.bool else given
    mask = mask[(None,) * (4 - mask.dim())]
    return mask, (*outer_strides(mask), mask.stride(-1))


def _sequences(q: Tensor, k: Tensor, starts: Tensor, of_keys: Tensor | None) -> tuple[Tensor, Tensor]:
    if q.shape[0] != 1:
        refuse("q", f"has {q.shape[0]} batches, expected 1 with 'cu_seqlens_q': all sequences one after the other")
    if of_keys is None and k.shape[1] != q.shape[1]:
        refuse("k", f"has {k.shape[1]} positions, expected those of 'q', {q.shape[1]}, without 'cu_seqlens_k'")
    of_both = starts, starts if of_keys is None else of_keys
    for name, given, positions in zip(("cu_seqlens_q", "cu_seqlens_k"), of_both, (q, k), strict=True):
        check_device(given, name, q, "q")
        if given.dtype not in (torch.int32, torch.int64) or given.dim() != 1 or len(given) == 0:
            expected = "expected int32 or int64 of shape (sequences + 1,)"
            refuse(name, f"is {given.dtype} of shape {tuple(given.shape)}, {expected}")
        fits = (given[0] == 0) & (given[-1] == positions.shape[1]) & (given.diff() >= 0).all()
        message = f"argument '{name}' does not say where sequences begin and the last one ends"
        check_on_device(fits, f"{message}: expected numbers that do not fall from 0 to {positions.shape[1]}")
    if of_both[0].shape != of_both[1].shape:
        refuse("cu_seqlens_k", f"has {len(of_both[1])} elements, but 'cu_seqlens_q' has {len(starts)}")
    return of_both[0].contiguous(), of_both[1].contiguous()


def _longest(starts: Tensor) -> int:
    return int(starts.diff().max()) if len(starts) > 1 else 0


def _check_causal(starts: Tensor, of_keys: Tensor, ids: Tensor | None) -> None:
    """Check that queries are where their sequence has a key."""
    if ids is None:
        check_on_device(
            (starts == of_keys).all(),
            "argument 'cu_seqlens_k' has other sequences than 'cu_seqlens_q': causal queries need 'position_ids', "
            "which say where they are among the keys of their sequence",
        )
    elif ids.numel():
        own = torch.searchsorted(starts, torch.arange(ids.numel(), device=ids.device), right=True) - 1
        has_key = ids.flatten() < of_keys.diff()[own]
        check_on_device(has_key.all(), "argument 'position_ids' has a position without a key in its sequence")
