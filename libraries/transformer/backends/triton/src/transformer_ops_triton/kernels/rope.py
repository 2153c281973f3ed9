"""Rotary position embedding."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .arguments import (
    FLOATING,
    check_dtype,
    check_like,
    check_position_ids,
    check_same,
    check_shape,
    outer_strides,
    refuse,
    with_adjacent_elements,
)
from .language import load, store
from .launch import block_of, compute_dtype, launch


@triton.jit
def _rotate(
    x,
    x_strides,
    y,
    y_strides,
    heads,
    pair,
    c,
    s,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    COMPUTE: tl.constexpr,
    HEADS: tl.constexpr,
):
    # A pair (u, v) turns into (u cos - v sin, v cos + u sin): all heads of one position.
    if INTERLEAVED:
        first, second = 2 * pair, 2 * pair + 1
    else:
        first, second = pair, pair + HALF
    for start in range(0, heads, HEADS):
        head = start + tl.arange(0, HEADS)
        mask = (head < heads)[:, None] & (pair < HALF)[None, :]
        here = head.to(tl.int64)[:, None] * x_strides[1]
        u = load(x, here + first[None, :], mask, COMPUTE)
        v = load(x, here + second[None, :], mask, COMPUTE)
        there = head.to(tl.int64)[:, None] * y_strides[1]
        store(y, there + first[None, :], mask, u * c - v * s)
        store(y, there + second[None, :], mask, v * c + u * s)


@triton.jit(do_not_specialize=["q_heads", "k_heads", "positions", "rows"])
def _rope(
    q,
    q_strides,
    q_turned,
    q_turned_strides,
    q_heads,
    k,
    k_strides,
    k_turned,
    k_turned_strides,
    k_heads,
    cos,
    sin,
    table_strides,
    ids,
    ids_strides,
    positions,
    rows,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    COMPUTE: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Strides are of batches, heads and positions; those of the tables of batches and rows.
    program = tl.program_id(0).to(tl.int64)
    batch, position = program // positions, program % positions
    row = position
    if ids is not None:
        row = tl.load(ids + batch * ids_strides[0] + position * ids_strides[1])
    angle = batch * table_strides[0] + row * table_strides[1]
    q += batch * q_strides[0] + position * q_strides[2]
    q_turned += batch * q_turned_strides[0] + position * q_turned_strides[2]
    k += batch * k_strides[0] + position * k_strides[2]
    k_turned += batch * k_turned_strides[0] + position * k_turned_strides[2]
    readable = tl.where((row >= 0) & (row < rows), HALF, 0)
    for start in range(0, HALF, BLOCK):
        pair = (start + tl.arange(0, BLOCK)).to(tl.int64)
        mask = pair < readable
        c = load(cos, angle + pair, mask, COMPUTE)[None, :]
        s = load(sin, angle + pair, mask, COMPUTE)[None, :]
        _rotate(q, q_strides, q_turned, q_turned_strides, q_heads, pair, c, s, HALF, INTERLEAVED, COMPUTE, HEADS)
        _rotate(k, k_strides, k_turned, k_turned_strides, k_heads, pair, c, s, HALF, INTERLEAVED, COMPUTE, HEADS)


def rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    unsqueeze_dim: int,
    interleaved: bool,
    rotary_dim: int | None,
) -> tuple[Tensor, Tensor]:
    """See ``transformer_ops.rope``."""
    if unsqueeze_dim not in (1, 2):
        refuse("unsqueeze_dim", f"is {unsqueeze_dim}, expected 1 or 2")
    check_dtype(q, "q", *FLOATING)
    check_shape(q, "q", -1, -1, -1, -1)
    turned = tuple(x.new_empty(x.shape) for x in (q, k))
    # Batches, heads, positions, elements.
    heads_first = [x if unsqueeze_dim == 1 else x.transpose(1, 2) for x in (q, k, *turned)]
    batches, heads, positions, length = heads_first[0].shape
    if length % 2 != 0:
        refuse("q", f"has rows of {length} elements, expected an even number")
    check_same(k, "k", q, "q")
    check_shape(heads_first[1], "k", batches, -1, positions, length)
    check_same(cos, "cos", q, "q")
    check_like(sin, "sin", cos, "cos")
    if rotary_dim not in (None, length):
        refuse(
            "rotary_dim",
            f"is {rotary_dim}, but heads have {length} elements; a part of each head is turned by passing "
            "q[..., :rotary_dim] and k[..., :rotary_dim], and concatenating the rest",
        )
    if cos.dim() not in (2, 3) or cos.shape[-1] not in (length, length if rotary_dim is None else length // 2):
        refuse(
            "cos",
            f"has shape {tuple(cos.shape)}, expected (positions, {length}) or (batch, positions, {length})"
            f"{'' if rotary_dim is None else ', or half as many columns'}; say with rotary_dim how many elements of a "
            "head the tables are for",
        )
    ids = None if position_ids is None else _ids(position_ids, cos, q, batches, positions)
    if ids is None and (cos.shape[-2] != positions or (cos.dim() == 3 and cos.shape[0] not in (1, batches))):
        refuse("cos", f"has shape {tuple(cos.shape)}, but there are {positions} positions of {batches} batches")
    tables = [table.contiguous().expand(batches, *table.shape[-2:]) for table in (cos, sin)]
    arguments = []
    for x, y in ((heads_first[0], heads_first[2]), (heads_first[1], heads_first[3])):
        adjacent = with_adjacent_elements(x)
        arguments += [adjacent, outer_strides(adjacent), y, outer_strides(y), x.shape[1]]
    half = length // 2
    block = block_of(half)
    launch(
        _rope,
        batches * positions if half else 0,
        q,
        *arguments,
        *tables,
        outer_strides(tables[0]),
        ids,
        (0, 0) if ids is None else ids.stride(),
        positions,
        cos.shape[-2],
        HALF=half,
        INTERLEAVED=interleaved,
        COMPUTE=compute_dtype(q.dtype),
        HEADS=max(1, min(triton.next_power_of_2(heads), 2048 // block["BLOCK"])),
        **block,
    )
    return turned[0], turned[1]


def _ids(given: Tensor, cos: Tensor, q: Tensor, batches: int, positions: int) -> Tensor:
    """``(batches, positions)``, of which each is a row of ``cos``."""
    check_position_ids(given, q, batches, positions, cos.shape[-2], "cos")
    if cos.dim() == 3 and cos.shape[0] != 1:
        refuse("cos", "has batches, and so have the positions of 'position_ids'; pass one table for all of them")
    return given.expand(batches, positions)
