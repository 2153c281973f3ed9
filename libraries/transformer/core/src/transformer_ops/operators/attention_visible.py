"""Which keys the queries of attention see: checks of what says so, and the keys as a mask."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Visible(NamedTuple):
    """The arguments of attention that say which keys a query sees."""

    is_causal: bool
    position_ids: Tensor | None
    attn_mask: Tensor | None
    window_size: int | None
    cu_seqlens_q: Tensor | None
    cu_seqlens_k: Tensor | None

    @property
    def may_be_none(self) -> bool:
        """Whether there may be queries that see no key."""
        return self.attn_mask is not None or self.window_size is not None or self.cu_seqlens_q is not None

    def check(self, q: Tensor, k: Tensor, cos: Tensor | None) -> None:
        """Refuse what does not fit, but for values of tensors.

        Raises:
            RuntimeError: naming the argument, what was given, and what is supported.
        """
        if self.position_ids is not None:
            self._check_positions(self.position_ids, q, cos)
        if self.attn_mask is not None:
            _check_mask(self.attn_mask, q, k)
        if self.window_size is not None:
            if not self.is_causal:
                raise RuntimeError(
                    "argument 'window_size' is given, but without 'is_causal' queries see all keys; pass None"
                )
            if self.window_size < 1:
                raise RuntimeError(f"argument 'window_size' is {self.window_size}, expected at least 1, or None")
        if self.cu_seqlens_q is not None:
            self._check_sequences(self.cu_seqlens_q, q, k, cos)
        elif self.cu_seqlens_k is not None:
            raise RuntimeError("argument 'cu_seqlens_k' is given, but 'cu_seqlens_q' is None; pass both")

    def _check_positions(self, ids: Tensor, q: Tensor, cos: Tensor | None) -> None:
        if not self.is_causal:
            raise RuntimeError(
                "argument 'position_ids' is given, but without 'is_causal' queries see all keys; pass None"
            )
        if cos is not None:
            raise RuntimeError(
                "argument 'position_ids' is given, and so is 'cos'; turn queries and keys with rope() first"
            )
        batches, queries = q.shape[:2]
        if ids.dtype != torch.int64 or ids.shape not in ((queries,), (1, queries), (batches, queries)):
            raise RuntimeError(
                f"argument 'position_ids' is {ids.dtype} of shape {tuple(ids.shape)}, expected "
                f"torch.int64 of shape ({queries},) or ({batches} or 1, {queries})"
            )

    def _check_sequences(self, starts: Tensor, q: Tensor, k: Tensor, cos: Tensor | None) -> None:
        if q.shape[0] != 1:
            raise RuntimeError(
                f"argument 'q' has {q.shape[0]} batches, expected 1 with 'cu_seqlens_q': sequences follow each other"
            )
        if self.attn_mask is not None:
            raise RuntimeError("argument 'attn_mask' is given, and so is 'cu_seqlens_q'; pass one of them")
        if cos is not None:
            raise RuntimeError(
                "argument 'cos' is given, and so is 'cu_seqlens_q'; turn queries and keys with rope() first"
            )
        of_keys = starts if self.cu_seqlens_k is None else self.cu_seqlens_k
        for name, given in (("cu_seqlens_q", starts), ("cu_seqlens_k", of_keys)):
            if given.dtype not in (torch.int32, torch.int64) or given.dim() != 1 or given.shape[0] == 0:
                raise RuntimeError(
                    f"argument '{name}' is {given.dtype} of shape {tuple(given.shape)}, expected int32 or int64 of "
                    "shape (sequences + 1,)"
                )
        if of_keys.shape != starts.shape:
            raise RuntimeError(
                f"argument 'cu_seqlens_k' has {of_keys.shape[0]} elements, but 'cu_seqlens_q' has {starts.shape[0]}"
            )
        if self.cu_seqlens_k is None and k.shape[1] != q.shape[1]:
            raise RuntimeError(
                f"argument 'k' has {k.shape[1]} positions, expected those of 'q', {q.shape[1]}, without 'cu_seqlens_k'"
            )

    def seen(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """Which keys the queries see, but for the mask, ``(batch or 1, 1, queries, keys)``; None for all."""
        of_queries, of_keys = (torch.arange(n, device=device) for n in (queries, keys))
        seen = None
        if self.cu_seqlens_q is not None:
            of_keys_too = self.cu_seqlens_q if self.cu_seqlens_k is None else self.cu_seqlens_k
            own, of_queries = _of_sequences(self.cu_seqlens_q, of_queries)
            others, of_keys = _of_sequences(of_keys_too, of_keys)
            seen = (own.view(-1, 1) == others)[None, None]
            if self.is_causal:
                lengths = of_keys_too.diff().long()
                if self.position_ids is None:
                    of_queries = of_queries + _refused((self.cu_seqlens_q != of_keys_too).any())
                else:
                    last = lengths.index_select(0, own) if len(lengths) else own
                    of_queries = self.position_ids.flatten()
                    of_queries = of_queries + _refused(((of_queries < 0) | (of_queries >= last)).any())
        elif self.position_ids is not None:  # others are refused
            of_queries = of_keys.index_select(0, self.position_ids.flatten())
        if not self.is_causal:
            return seen
        rows = 1 if self.position_ids is None else self.position_ids.shape[:-1].numel()
        positions = of_queries.view(rows, 1, queries, 1)
        before = of_keys <= positions
        if self.window_size is not None:
            before = before & (of_keys > positions - self.window_size)
        return before if seen is None else seen & before


def _check_mask(mask: Tensor, q: Tensor, k: Tensor) -> None:
    if mask.dtype not in (torch.bool, q.dtype):
        raise RuntimeError(
            f"argument 'attn_mask' is {mask.dtype}, expected bool or the dtype of 'q', {q.dtype}; convert it with "
            ".to(...)"
        )
    sizes = (q.shape[0], q.shape[2], q.shape[1])
    own = mask.shape[:-1]
    if (
        mask.dim() not in (2, 3, 4)
        or mask.shape[-1] != k.shape[1]
        or any(size not in (1, whole) for size, whole in zip(own, sizes[3 - len(own) :], strict=True))
    ):
        raise RuntimeError(
            f"argument 'attn_mask' has shape {tuple(mask.shape)}, expected ({sizes[0]} or 1, {sizes[1]} or 1, "
            f"{sizes[2]} or 1, {k.shape[1]}), or the last two or three of these"
        )


def _refused(is_wrong: Tensor) -> Tensor:
    """Zero. Of values that are wrong there is no such element."""
    return torch.zeros(1, dtype=torch.int64, device=is_wrong.device).index_select(0, is_wrong.long().view(1))


def _of_sequences(starts: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The sequences of these places, and the places within them."""
    ends = torch.cat((starts[1:], starts.new_full((1,), len(places))))
    is_wrong = (starts[0] != 0) | (starts[-1] != len(places)) | (ends < starts).any()
    own = (places.view(-1, 1) >= starts[1:]).sum(-1) + _refused(is_wrong)
    return own, places - starts.long().index_select(0, own)
