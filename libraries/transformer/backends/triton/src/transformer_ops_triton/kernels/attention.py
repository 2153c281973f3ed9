"""Attention of queries to keys and values, as FlashAttention 2 computes it (https://arxiv.org/abs/2307.08691).

A program has a block of one head's queries in registers and goes through the keys, a block after the other; of the
gradients, those of keys and values come from programs that have a block of keys and go through the queries. Scores are
computed anew in both passes. For 16-bit dtypes the factors of products are 16-bit numbers, weights and their gradients
too, and sums are in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import (
    FLOATING,
    check_dtype,
    check_like,
    check_same,
    check_shape,
    outer_strides,
    refuse,
    wide,
    with_adjacent_elements,
)
from .attention_visible import Visible
from .language import dot, load, rounded, store
from .launch import compute_dtype, launch
from .rope import rope


@triton.jit
def _place(positions, heads, ROWS: tl.constexpr):
    # The first position of this program's block, and whose it is: of which batch and head.
    blocks = tl.cdiv(positions, ROWS)
    program = tl.program_id(0).to(tl.int64)
    return program % blocks * ROWS, program // blocks // heads, program // blocks % heads


@triton.jit
def _head(x, strides, batch, head, start):
    # Strides are of batches, positions and heads; elements are next to each other. A sequence begins at `start`.
    return x + batch * strides[0] + start * strides[1] + head * strides[2]


@triton.jit
def _sequence(starts, batch, positions):
    # Where a sequence begins, and how many positions it has: a batch, or, with `starts`, one of several in the first.
    start = batch * 0
    if starts is not None:
        start = tl.load(starts + batch).to(tl.int64)
        positions = tl.load(starts + batch + 1).to(tl.int64) - start
    return start, positions


@triton.jit
def _batch(starts, batch):
    return batch if starts is None else batch * 0


@triton.jit
def _places(strides, i, c):
    return i[:, None] * strides[1] + c[None, :]


@triton.jit
def _tile(x, strides, i, positions, c, LENGTH: tl.constexpr):
    # Rows i of a head, in the dtype that they have; 0 where nothing is.
    mask = (i < positions)[:, None] & (c < LENGTH)[None, :]
    return tl.load(x + _places(strides, i, c), mask=mask, other=0)


@triton.jit
def _store_tile(x, strides, i, positions, c, values, LENGTH: tl.constexpr):
    mask = (i < positions)[:, None] & (c < LENGTH)[None, :]
    store(x, _places(strides, i, c), mask, values)


@triton.jit
def _positions(ids, ids_stride, batch, start, i, queries):
    # Of queries i among the keys.
    positions = i
    if ids is not None:
        positions = tl.load(ids + batch * ids_stride + start + i, mask=i < queries, other=0)
    return positions


@triton.jit
def _most_seen(ids, positions, end, keys, CAUSAL: tl.constexpr):
    # How many keys some query of a block sees, which ends before query `end`.
    seen = keys
    if CAUSAL:
        if ids is not None:
            end = tl.max(positions, 0) + 1
        seen = tl.minimum(keys, end)
    return seen


@triton.jit
def _first_seen(positions, i, queries, keys, WINDOW: tl.constexpr, ROWS: tl.constexpr):
    # The first block of keys that some query of a block sees.
    first = 0
    if WINDOW > 0:
        least = tl.min(tl.where(i < queries, positions, keys), 0)
        first = tl.maximum(least + 1 - WINDOW, 0) // ROWS * ROWS
    return first


@triton.jit
def _scores(
    q,
    k,
    positions,
    i,
    queries,
    j,
    keys,
    mask,
    mask_strides,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    # Of queries i at these positions and keys j, -inf where a query does not see a key. `mask` is that of the head.
    scores = dot(q, tl.trans(k), COMPUTE) * SCALE
    seen = (j < keys)[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= positions[:, None])
    if WINDOW > 0:
        seen = seen & (j[None, :] > positions[:, None] - WINDOW)
    if mask is not None:
        at = i[:, None] * mask_strides[2] + j[None, :] * mask_strides[3]
        there = (i < queries)[:, None] & (j < keys)[None, :]
        if mask.dtype.element_ty == tl.uint8:
            seen = seen & (tl.load(mask + at, mask=there, other=0) != 0)
        else:
            scores += load(mask, at, there, COMPUTE)
    return tl.where(seen, scores, -float("inf"))


@triton.jit
def _mask_of(mask, strides, batch, head):
    return mask if mask is None else mask + batch * strides[0] + head * strides[1]


@triton.jit
def _divisor(total):
    # 1 where a query sees no key.
    return tl.where(total == 0, 1, total)


@triton.jit
def _larger(top, scores):
    # The largest score with those of more keys, what is subtracted from scores for it, and what sums for the one before
    # are multiplied by.
    larger = tl.maximum(top, tl.max(scores, 1))
    shift = _shift(larger)
    return larger, shift, tl.exp(top - shift)


@triton.jit
def _shift(top):
    # An infinity minus itself would be nan.
    return tl.where(tl.abs(top) == float("inf"), 0, top)


@triton.jit(do_not_specialize=["ids_stride", "heads", "total_queries", "queries", "keys"])
def _attention(
    q,
    q_strides,
    k,
    k_strides,
    v,
    v_strides,
    y,
    y_strides,
    lse,
    ids,
    ids_stride,
    mask,
    mask_strides,
    query_starts,
    key_starts,
    heads,
    group,
    total_queries,
    queries,
    keys,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    COMPUTE: tl.constexpr,
    LENGTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    first, sequence, head = _place(queries, heads, ROWS)
    query_start, queries = _sequence(query_starts, sequence, queries)
    key_start, keys = _sequence(key_starts, sequence, keys)
    batch = _batch(query_starts, sequence)
    k, v = _head(k, k_strides, batch, head // group, key_start), _head(v, v_strides, batch, head // group, key_start)
    mask = _mask_of(mask, mask_strides, batch, head)
    i, c = first + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    q_tile = _tile(_head(q, q_strides, batch, head, query_start), q_strides, i, queries, c, LENGTH)
    top = tl.full([ROWS], -float("inf"), COMPUTE)
    total = tl.zeros([ROWS], COMPUTE)
    sums = tl.zeros([ROWS, BLOCK], COMPUTE)
    positions = _positions(ids, ids_stride, batch, query_start, i, queries)
    begin = _first_seen(positions, i, queries, keys, WINDOW, ROWS)
    for start in range(begin, _most_seen(ids, positions, first + ROWS, keys, CAUSAL), ROWS):
        j = (start + tl.arange(0, ROWS)).to(tl.int64)
        k_tile = _tile(k, k_strides, j, keys, c, LENGTH)
        scores = _scores(
            q_tile, k_tile, positions, i, queries, j, keys, mask, mask_strides, CAUSAL, WINDOW, SCALE, COMPUTE
        )
        top, shift, factor = _larger(top, scores)
        weights = tl.exp(scores - shift[:, None])
        v_tile = _tile(v, v_strides, j, keys, c, LENGTH)
        total = total * factor + tl.sum(weights, 1)
        sums = sums * factor[:, None] + dot(rounded(weights, v_tile.dtype), v_tile, COMPUTE)
    total = _divisor(total)
    y = _head(y, y_strides, batch, head, query_start)
    _store_tile(y, y_strides, i, queries, c, sums / total[:, None], LENGTH)
    of_rows = (batch * heads + head) * total_queries + query_start + i
    tl.store(lse + of_rows, top + tl.log(total), mask=i < queries)


@triton.jit
def _weights(
    q,
    k,
    v,
    grad,
    shift,
    factor,
    positions,
    i,
    queries,
    j,
    keys,
    mask,
    mask_strides,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    # p, of queries i at these positions and keys j, and dp, their gradients.
    scores = _scores(q, k, positions, i, queries, j, keys, mask, mask_strides, CAUSAL, WINDOW, SCALE, COMPUTE)
    return tl.exp(scores - shift[:, None]) * factor[:, None], dot(grad, tl.trans(v), COMPUTE)


@triton.jit(do_not_specialize=["ids_stride", "heads", "total_queries", "queries", "keys"])
def _attention_backward_of_queries(
    grad,
    grad_strides,
    q,
    q_strides,
    k,
    k_strides,
    v,
    v_strides,
    dq,
    dq_strides,
    shifts,
    factors,
    means,
    ids,
    ids_stride,
    mask,
    mask_strides,
    query_starts,
    key_starts,
    heads,
    group,
    total_queries,
    queries,
    keys,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    COMPUTE: tl.constexpr,
    LENGTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # dq, and of each query what the kernel of keys and values needs: p = exp(score - shift) * factor, with the largest
    # score as shift, and the mean of dp, sum(p * dp): the gradients of scores are p * (dp - mean). The forward pass has
    # kept the logarithm of the sum of exp(score), and y, of which the mean is sum(grad * y). Both are rounded: where
    # one key has nearly all of the weight, exp(score - lse) is 1 but for what a score of a thousand has lost in lse,
    # 1e-4, and dp - mean is little but what y has lost.
    first, sequence, head = _place(queries, heads, ROWS)
    query_start, queries = _sequence(query_starts, sequence, queries)
    key_start, keys = _sequence(key_starts, sequence, keys)
    batch = _batch(query_starts, sequence)
    k, v = _head(k, k_strides, batch, head // group, key_start), _head(v, v_strides, batch, head // group, key_start)
    mask = _mask_of(mask, mask_strides, batch, head)
    i, c = first + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    q_tile = _tile(_head(q, q_strides, batch, head, query_start), q_strides, i, queries, c, LENGTH)
    grad_tile = _tile(_head(grad, grad_strides, batch, head, query_start), grad_strides, i, queries, c, LENGTH)
    of_rows = (batch * heads + head) * total_queries + query_start + i
    positions = _positions(ids, ids_stride, batch, query_start, i, queries)
    begin = _first_seen(positions, i, queries, keys, WINDOW, ROWS)
    seen = _most_seen(ids, positions, first + ROWS, keys, CAUSAL)
    top = tl.full([ROWS], -float("inf"), COMPUTE)
    total = tl.zeros([ROWS], COMPUTE)
    products = tl.zeros([ROWS], COMPUTE)
    for start in range(begin, seen, ROWS):
        j = (start + tl.arange(0, ROWS)).to(tl.int64)
        k_tile = _tile(k, k_strides, j, keys, c, LENGTH)
        v_tile = _tile(v, v_strides, j, keys, c, LENGTH)
        scores = _scores(
            q_tile, k_tile, positions, i, queries, j, keys, mask, mask_strides, CAUSAL, WINDOW, SCALE, COMPUTE
        )
        top, shift, factor = _larger(top, scores)
        weights = tl.exp(scores - shift[:, None])
        total = total * factor + tl.sum(weights, 1)
        products = products * factor + tl.sum(weights * dot(grad_tile, tl.trans(v_tile), COMPUTE), 1)
    total = _divisor(total)
    shift, factor, mean = _shift(top), 1 / total, products / total
    tl.store(shifts + of_rows, shift, mask=i < queries)
    tl.store(factors + of_rows, factor, mask=i < queries)
    tl.store(means + of_rows, mean, mask=i < queries)
    result = tl.zeros([ROWS, BLOCK], COMPUTE)
    for start in range(begin, seen, ROWS):
        j = (start + tl.arange(0, ROWS)).to(tl.int64)
        k_tile = _tile(k, k_strides, j, keys, c, LENGTH)
        v_tile = _tile(v, v_strides, j, keys, c, LENGTH)
        p, dp = _weights(
            q_tile,
            k_tile,
            v_tile,
            grad_tile,
            shift,
            factor,
            positions,
            i,
            queries,
            j,
            keys,
            mask,
            mask_strides,
            CAUSAL,
            WINDOW,
            SCALE,
            COMPUTE,
        )
        result += dot(rounded(p * (dp - mean[:, None]), k_tile.dtype), k_tile, COMPUTE)
    _store_tile(_head(dq, dq_strides, batch, head, query_start), dq_strides, i, queries, c, result * SCALE, LENGTH)


@triton.jit(do_not_specialize=["ids_stride", "shared", "total_queries", "queries", "keys"])
def _attention_backward_of_keys(
    grad,
    grad_strides,
    q,
    q_strides,
    k,
    k_strides,
    v,
    v_strides,
    dk,
    dk_strides,
    dv,
    dv_strides,
    shifts,
    factors,
    means,
    ids,
    ids_stride,
    mask,
    mask_strides,
    query_starts,
    key_starts,
    shared,
    group,
    total_queries,
    queries,
    keys,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    COMPUTE: tl.constexpr,
    LENGTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # dk and dv, sums over the `group` heads of queries that share a head.
    first, sequence, head = _place(keys, shared, ROWS)
    query_start, queries = _sequence(query_starts, sequence, queries)
    key_start, keys = _sequence(key_starts, sequence, keys)
    batch = _batch(query_starts, sequence)
    j, c = first + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    k_tile = _tile(_head(k, k_strides, batch, head, key_start), k_strides, j, keys, c, LENGTH)
    v_tile = _tile(_head(v, v_strides, batch, head, key_start), v_strides, j, keys, c, LENGTH)
    of_k, of_v = tl.zeros([ROWS, BLOCK], COMPUTE), tl.zeros([ROWS, BLOCK], COMPUTE)
    begin, end = 0, queries
    if CAUSAL and ids is None:
        begin = first  # no query before sees these keys
        if WINDOW > 0:
            end = tl.minimum(queries, first + ROWS + WINDOW)
    for one in range(group):
        of_head = head * group + one
        of_rows = (batch * shared * group + of_head) * total_queries + query_start
        of_mask = _mask_of(mask, mask_strides, batch, of_head)
        of_q = _head(q, q_strides, batch, of_head, query_start)
        of_grad = _head(grad, grad_strides, batch, of_head, query_start)
        for start in range(begin, end, ROWS):
            i = (start + tl.arange(0, ROWS)).to(tl.int64)
            q_tile = _tile(of_q, q_strides, i, queries, c, LENGTH)
            grad_tile = _tile(of_grad, grad_strides, i, queries, c, LENGTH)
            shift = load(shifts, of_rows + i, i < queries, COMPUTE)
            factor = load(factors, of_rows + i, i < queries, COMPUTE)
            mean = load(means, of_rows + i, i < queries, COMPUTE)
            positions = _positions(ids, ids_stride, batch, query_start, i, queries)
            p, dp = _weights(
                q_tile,
                k_tile,
                v_tile,
                grad_tile,
                shift,
                factor,
                positions,
                i,
                queries,
                j,
                keys,
                of_mask,
                mask_strides,
                CAUSAL,
                WINDOW,
                SCALE,
                COMPUTE,
            )
            of_v += dot(tl.trans(rounded(p, v_tile.dtype)), grad_tile, COMPUTE)
            of_k += dot(tl.trans(rounded(p * (dp - mean[:, None]), k_tile.dtype)), q_tile, COMPUTE)
    _store_tile(_head(dk, dk_strides, batch, head, key_start), dk_strides, j, keys, c, of_k * SCALE, LENGTH)
    _store_tile(_head(dv, dv_strides, batch, head, key_start), dv_strides, j, keys, c, of_v, LENGTH)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    scale: float | None,
    cos: Tensor | None,
    sin: Tensor | None,
    position_ids: Tensor | None = None,
    attn_mask: Tensor | None = None,
    window_size: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> Tensor:
    """See ``transformer_ops.attention``."""
    which = position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k
    return attention_training(q, k, v, is_causal, scale, cos, sin, *which)[0]


def attention_training(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    scale: float | None,
    cos: Tensor | None,
    sin: Tensor | None,
    position_ids: Tensor | None = None,
    attn_mask: Tensor | None = None,
    window_size: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithm of each query's sum of ``exp(score)``, ``(batch, heads, positions)``."""
    _check(q, k, v)
    which = position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k
    visible = Visible.of(q, k, is_causal, cos, *which)
    q, k = _turned(q, k, cos, sin)
    q, k, v = (with_adjacent_elements(x) for x in (q, k, v))
    batches, queries, heads, _ = q.shape
    keys, shared = k.shape[1:3]
    y = q.new_empty(q.shape)
    lse = q.new_empty(batches, heads, queries, dtype=wide(q.dtype))
    if keys == 0:
        return y.zero_(), lse.fill_(-torch.inf)
    options = _options(q, is_causal, scale) | visible.constants
    launch(
        _attention,
        visible.sequences * heads * triton.cdiv(visible.queries, options["ROWS"]),
        q,
        *_with_strides(q, k, v, y),
        lse,
        *visible.tensors,
        heads,
        heads // max(shared, 1),
        queries,
        visible.queries,
        visible.keys,
        **options,
    )
    return y, lse


def attention_backward(
    grad_output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    lse: Tensor,
    is_causal: bool,
    scale: float | None,
    cos: Tensor | None,
    sin: Tensor | None,
    position_ids: Tensor | None = None,
    attn_mask: Tensor | None = None,
    window_size: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``q``, ``k`` and ``v``."""
    gradients = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    which = position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k
    write_gradients(gradients, grad_output, q, k, v, y, lse, is_causal, scale, cos, sin, *which)
    return gradients


def write_gradients(
    gradients: tuple[Tensor, ...],
    grad_output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    lse: Tensor,
    is_causal: bool,
    scale: float | None,
    cos: Tensor | None,
    sin: Tensor | None,
    position_ids: Tensor | None = None,
    attn_mask: Tensor | None = None,
    window_size: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> None:
    """Write those of ``q``, ``k`` and ``v`` into tensors of their shapes, whose elements of a head are adjacent."""
    _check(q, k, v)
    which = position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k
    visible = Visible.of(q, k, is_causal, cos, *which)
    q, k = _turned(q, k, cos, sin)
    check_like(grad_output, "grad_output", q, "q")
    check_like(y, "y", q, "q")
    grad, q, k, v = (with_adjacent_elements(x) for x in (grad_output, q, k, v))
    batches, queries, heads, _ = q.shape
    keys, shared = k.shape[1:3]
    check_dtype(lse, "lse", wide(q.dtype))
    check_shape(lse, "lse", batches, heads, queries)
    dq, dk, dv = gradients
    if keys == 0:
        dq.zero_()
        return
    of_queries = [lse.new_empty(lse.shape) for _ in range(3)]  # shifts, factors, means
    options = _options(q, is_causal, scale) | visible.constants
    of_heads = (heads // max(shared, 1), queries, visible.queries, visible.keys)
    launch(
        _attention_backward_of_queries,
        visible.sequences * heads * triton.cdiv(visible.queries, options["ROWS"]),
        q,
        *_with_strides(grad, q, k, v, dq),
        *of_queries,
        *visible.tensors,
        heads,
        *of_heads,
        **options,
    )
    launch(
        _attention_backward_of_keys,
        visible.sequences * shared * triton.cdiv(visible.keys, options["ROWS"]),
        q,
        *_with_strides(grad, q, k, v, dk, dv),
        *of_queries,
        *visible.tensors,
        shared,
        *of_heads,
        **options,
    )
    if sin is not None:
        for gradient, turned in zip((dq, dk), _turned(dq, dk, cos, -sin), strict=True):
            gradient.copy_(turned)


def _turned(q: Tensor, k: Tensor, cos: Tensor | None, sin: Tensor | None) -> tuple[Tensor, Tensor]:
    """By the angles of their positions, rounded to their dtype as products' factors are; as they are without tables."""
    if cos is None and sin is None:
        return q, k
    if cos is None or sin is None:
        name, other = ("cos", "sin") if cos is None else ("sin", "cos")
        refuse(name, f"is None, but '{other}' is not; pass both or none")
    if cos.shape[-1:] != q.shape[-1:]:
        refuse(
            "cos",
            f"has shape {tuple(cos.shape)}, expected {q.shape[-1]} columns; of a table with half as many pass "
            "torch.cat((cos, cos), -1)",
        )
    return rope(q, k, cos, sin, None, 2, False, None)


def _with_strides(*tensors: Tensor) -> list[object]:
    return [part for x in tensors for part in (x, outer_strides(x))]


def _options(q: Tensor, is_causal: bool, scale: float | None) -> dict[str, object]:
    """What the kernels are compiled for.

    Blocks have at least 16 rows and columns, as Triton's products want, and with those that are fetched ahead less than
    99 KiB, which is what GPUs of compute capability 8.6 and 8.9 have for a program.
    """
    length = q.shape[3]
    block = max(16, triton.next_power_of_2(length))
    is_narrow = q.element_size() == 2
    rows = 64 if is_narrow and block <= 128 else 32 if is_narrow or block * q.element_size() <= 512 else 16
    return {
        "CAUSAL": is_causal,
        "SCALE": length**-0.5 if scale is None else scale,
        "COMPUTE": compute_dtype(q.dtype),
        "LENGTH": length,
        "ROWS": rows,
        "BLOCK": block,
        "num_warps": 4,
        "num_stages": 3 if is_narrow else 1,
    }


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    check_dtype(q, "q", *FLOATING)
    if q.dim() != 4 or q.shape[3] == 0:
        refuse("q", f"has shape {tuple(q.shape)}, expected (batch, positions, heads, length)")
    longest = 128 if q.dtype is torch.float64 else 256  # of longer ones blocks do not fit into a GPU's shared memory
    if q.shape[3] > longest:
        refuse(
            "q",
            f"has heads of {q.shape[3]} elements, supported are up to {longest} of {q.dtype}; use "
            "torch.nn.functional.scaled_dot_product_attention",
        )
    check_same(k, "k", q, "q")
    check_shape(k, "k", q.shape[0], -1, -1, q.shape[3])
    check_like(v, "v", k, "k")
    heads, shared = q.shape[2], k.shape[2]
    if heads % shared if shared else heads:
        refuse("q", f"has {heads} heads, expected a multiple of those of 'k', {shared}")
