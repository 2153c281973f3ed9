"""Rotary position embedding."""

from __future__ import annotations

import torch
from opwheel import Operator
from torch import Tensor

from .invariance import RECORDED, along
from .precision import wide


def _rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
    interleaved: bool = False,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    if unsqueeze_dim not in (1, 2):
        raise ValueError(f"unsqueeze_dim is {unsqueeze_dim}, expected 1 or 2")
    length = q.shape[-1]
    if rotary_dim not in (None, length):
        raise RuntimeError(f"argument 'rotary_dim' is {rotary_dim}, but heads have {length} elements")
    if cos.shape[-1] not in (length, length if rotary_dim is None else length // 2):
        raise RuntimeError(f"argument 'cos' has {cos.shape[-1]} columns, but heads have {length} elements")
    if position_ids is not None:
        # Not an index, whose gradient CPUs add up in another order in each call.
        tables = (table.reshape(table.shape[-2:]) for table in (cos, sin))
        cos, sin = (torch.nn.functional.embedding(position_ids, table) for table in tables)
    return rotated(q, cos, sin, unsqueeze_dim, interleaved), rotated(k, cos, sin, unsqueeze_dim, interleaved)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int, interleaved: bool = False) -> Tensor:
    """One of both, by tables with a row for each position: computed wide, and rounded to its own dtype."""
    half = x.shape[-1] // 2
    cos, sin = (table if table.dim() == 3 else table.unsqueeze(0) for table in (cos, sin))
    c, s = (wide(table[..., :half]).unsqueeze(unsqueeze_dim) for table in (cos, sin))
    values = wide(x)
    if interleaved:
        u, v = values[..., 0::2], values[..., 1::2]
        return torch.stack((u * c - v * s, v * c + u * s), -1).flatten(-2).to(x.dtype)
    u, v = values[..., :half], values[..., half:]
    return torch.cat((u * c - v * s, v * c + u * s), -1).to(x.dtype)


ROPE = Operator(
    "rope",
    reference=_rope,
    derivatives={"q, k": "rope(grads[0], grads[1], cos, -sin, position_ids, unsqueeze_dim, interleaved, rotary_dim)"},
    invariant=RECORDED
    | {"batch": along(0, "q", "k", "result0", "result1") | along(-3, "cos", "sin") | {"position_ids": -2}},
    doc="""Rotate pairs of elements of queries and keys by angles that depend on their positions.

    A pair ``(u, v)`` becomes ``(u * cos - v * sin, v * cos + u * sin)`` (Su et al. 2021,
    https://arxiv.org/abs/2104.09864).

    Args:
        q: queries, ``(batch, heads, positions, length)``; float16, bfloat16, float32 or float64. ``length`` is even.
        k: keys, of the same dtype, batch, positions and length; the number of heads may differ.
        cos: ``(batch or 1, positions, length)`` or ``(positions, length)``, of the dtype of ``q``. Of each row the
            first half is used; with ``rotary_dim`` it may have just that.
        sin: of the shape and dtype of ``cos``.
        position_ids: None, or int64 ``(batch or 1, positions)``: the rows of ``cos`` and ``sin`` to take, which then
            have any number of positions and no batches.
        unsqueeze_dim: the dimension of the heads: 1 as above, or 2 for ``(batch, positions, heads, length)``.
        interleaved: whether pairs are neighbours, ``(x[2 i], x[2 i + 1])``, and not ``(x[i], x[i + length / 2])``.
        rotary_dim: None, or ``length``, which says that tables of half as many columns are for all of a head, as
            FlashAttention has them. Without it they are refused: they could be full tables of a partial rotary
            embedding, such as GPT-NeoX's. To turn a part of each head pass ``q[..., :rotary_dim]`` and
            ``k[..., :rotary_dim]``, and concatenate the rest.

    Returns:
        ``q`` and ``k``, rotated: new tensors of their shapes and dtypes. Computed in float32, float64 for float64, and
        rounded once.

    Raises:
        RuntimeError: a shape or dtype does not fit, a position has no row, or ``rotary_dim`` is not ``length``.
    """,
)
