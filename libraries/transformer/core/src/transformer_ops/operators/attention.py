"""Attention of queries to keys and values, without all scores in memory."""

from __future__ import annotations

import torch
from opwheel import Operator
from torch import Tensor

from .attention_visible import Visible
from .checks import check_like, check_shape
from .invariance import RECORDED, along
from .precision import wide
from .rope import rotated


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.dim() != 4 or q.shape[3] == 0:
        raise RuntimeError(f"argument 'q' has shape {tuple(q.shape)}, expected (batch, positions, heads, length)")
    check_shape(k, "k", (q.shape[0], *k.shape[1:3], q.shape[3]))
    check_shape(v, "v", k.shape)
    if not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(f"arguments 'q', 'k' and 'v' are {q.dtype}, {k.dtype} and {v.dtype}, expected one dtype")
    if q.shape[2] % k.shape[2] if k.shape[2] else q.shape[2]:
        raise RuntimeError(f"argument 'q' has {q.shape[2]} heads, expected a multiple of those of 'k', {k.shape[2]}")


def _rotated(q: Tensor, k: Tensor, cos: Tensor | None, sin: Tensor | None) -> tuple[Tensor, Tensor]:
    """Wide, and turned by the angles of their positions where there are tables."""
    if cos is None or sin is None:
        if cos is not sin:
            raise RuntimeError("one of the arguments 'cos' and 'sin' is None, expected both or none")
        return wide(q), wide(k)
    batches, positions, _, length = q.shape
    if k.shape[1] != positions:
        raise RuntimeError(f"argument 'k' has {k.shape[1]} positions, expected those of 'q' with 'cos', {positions}")
    if length % 2 != 0:
        raise RuntimeError(f"argument 'q' has rows of {length} elements, expected an even number with 'cos'")
    check_like(sin, "sin", cos, "cos")
    if (
        cos.dtype != q.dtype
        or cos.dim() not in (2, 3)
        or cos.shape[-2] != positions
        or cos.shape[-1] != length
        or cos.shape[:-2].numel() not in (1, batches)
    ):
        raise RuntimeError(
            f"argument 'cos' is {cos.dtype} of shape {tuple(cos.shape)}, expected {q.dtype} of shape ({positions}, "
            f"{length}) or ({batches} or 1, {positions}, {length}); of a table with half as many columns pass "
            "torch.cat((cos, cos), -1)"
        )
    return rotated(wide(q), cos, sin, 2), rotated(wide(k), cos, sin, 2)


def _heads_first(x: Tensor, heads: int) -> Tensor:
    """``(batch, heads, positions, length)``, wide; a head that several queries share once for each of them."""
    repeats = heads // x.shape[2] if x.shape[2] else 1
    return wide(x).transpose(1, 2).repeat_interleave(repeats, 1)


def _scaled(q: Tensor, scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


def _seen(q: Tensor, k: Tensor, visible: Visible) -> Tensor | None:
    """Which queries see which keys; None where all see all."""
    seen, mask = visible.seen(q.shape[1], k.shape[1], q.device), visible.attn_mask
    if mask is None or mask.dtype != torch.bool:
        return seen
    return mask if seen is None else seen & mask


def _scores(q: Tensor, k: Tensor, scale: float | None, visible: Visible) -> Tensor:
    heads, mask, seen = q.shape[2], visible.attn_mask, _seen(q, k, visible)
    scores = _heads_first(q, heads) @ _heads_first(k, heads).transpose(-1, -2) * _scaled(q, scale)
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    return scores if seen is None else torch.where(seen, scores, -torch.inf)


def _weights(scores: Tensor, visible: Visible) -> tuple[Tensor, Tensor]:
    """``softmax(scores)`` and ``logsumexp(scores)``; 0 and -inf for a query that sees no key."""
    if not visible.may_be_none:
        return torch.softmax(scores, -1), torch.logsumexp(scores, -1)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    scores = torch.where(nothing, 0, scores)  # of which there are derivatives
    weights, lse = torch.softmax(scores, -1), torch.logsumexp(scores, -1)
    return torch.where(nothing, 0, weights), torch.where(nothing.squeeze(-1), -torch.inf, lse)


def attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
    attn_mask: Tensor | None = None,
    window_size: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> Tensor:
    """The operator in terms of PyTorch's."""
    which = position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k
    return attention_training_reference(q, k, v, is_causal, scale, cos, sin, *which)[0]


def attention_training_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
    attn_mask: Tensor | None = None,
    window_size: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`attention`, and of each query the logarithm of the sum of ``exp(score)``."""
    visible = Visible(is_causal, position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k)
    _check(q, k, v)
    visible.check(q, k, cos)
    dtype = q.dtype
    q, k = _rotated(q, k, cos, sin)
    weights, lse = _weights(_scores(q, k, scale, visible), visible)
    y = weights @ _heads_first(v, q.shape[2])
    return y.transpose(1, 2).to(dtype), lse


def attention_backward_reference(
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
    """The gradients of ``q``, ``k`` and ``v``; ``y`` and ``lse`` are what ``attention_training`` gave for them.

    Both are rounded, and nothing is computed from them: in float32 a score of 1e10 has no digit that ``exp(score -
    lse)`` needs, and the mean of ``dp``, which is ``sum(grad_output * y)``, would lose what ``y`` has lost. ``sum(p)``
    is 1, but for what weights are rounded by.
    """
    visible = Visible(is_causal, position_ids, attn_mask, window_size, cu_seqlens_q, cu_seqlens_k)
    _check(q, k, v)
    visible.check(q, k, cos)
    check_like(grad_output, "grad_output", q, "q")
    check_like(y, "y", q, "q")
    check_shape(lse, "lse", (q.shape[0], q.shape[2], q.shape[1]))
    heads, shared, dtype = q.shape[2], k.shape[2], q.dtype
    q, k = _rotated(q, k, cos, sin)

    seen = _seen(q, k, visible)

    def of_seen(x: Tensor) -> Tensor:  # nan of a query is none of a key that it does not see, nor the other way round
        return x if seen is None else torch.where(seen, x, 0.0)

    p = of_seen(_weights(_scores(q, k, scale, visible), visible)[0])
    total = p.sum(-1, keepdim=True)
    if visible.may_be_none:
        total = torch.where(total == 0, 1, total)
    gradients = _heads_first(grad_output, heads)
    dp = of_seen(gradients @ _heads_first(v, heads).transpose(-1, -2))
    mean = (p * dp).sum(-1, keepdim=True) / total
    ds = of_seen(p * (dp - mean)) * _scaled(q, scale)

    def of_shared(x: Tensor) -> Tensor:
        return x.unflatten(1, (shared, heads // shared)).sum(2) if shared not in (0, heads) else x

    dq = ds @ _heads_first(k, heads)
    dk = of_shared(ds.transpose(-1, -2) @ _heads_first(q, heads))
    dv = of_shared(p.transpose(-1, -2) @ gradients)
    dq, dk, dv = (x.transpose(1, 2) for x in (dq, dk, dv))
    if cos is not None and sin is not None:
        dq, dk = rotated(dq, cos, -sin, 2), rotated(dk, cos, -sin, 2)
    return dq.to(dtype), dk.to(dtype), dv.to(dtype)


# Heads do not look at each other; a mask of each head, and calls without one, are in placements.json.
_HEADS = "q=S(2), k=S(2), v=S(2)"
_EVENLY = "evenly if attn_mask.dim=4, attn_mask.size(1)=1"

# A token and what comes after it, of which it sees nothing.
_ONE_AFTER_THE_OTHER = {"cu_seqlens_q": None, "cu_seqlens_k": None}
_CAUSAL = (
    along(1, "q", "k", "v")
    | along(-2, "cos", "sin")
    | {"is_causal": True, "position_ids": None, "attn_mask": None}
    | _ONE_AFTER_THE_OTHER
)
_BATCH = (
    along(0, "q", "k", "v") | along(-3, "cos", "sin") | {"position_ids": -2, "attn_mask": -4} | _ONE_AFTER_THE_OTHER
)
_QUERIES = along(1, "q", "result") | {"is_causal": False, "cos": None, "attn_mask": -2} | _ONE_AFTER_THE_OTHER
ATTENTION = Operator(
    "attention",
    reference=attention_reference,
    invariant=RECORDED
    | {
        "batch": (_BATCH | {"result": 0}, _QUERIES),
        "prefix": _CAUSAL | {"result": 1},
    },
    placements=(f"{_HEADS} -> S(2) {_EVENLY}",),
    training="attention_training",
    autocast="lower_precision",
    doc="""``softmax(scale * q @ k.T) @ v`` for each head, without all of these scores in memory.

    As FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135), and with its order of dimensions; names and
    defaults are those of :func:`torch.nn.functional.scaled_dot_product_attention`.

    Args:
        q: queries, ``(batch, positions, heads, length)``; float16, bfloat16, float32 or float64.
        k: keys, of the same dtype, batch and length. The number of positions may differ, and ``q`` may have a multiple
            of its heads: consecutive heads of ``q`` then share one (grouped-query attention).
        v: values, of the shape and dtype of ``k``.
        is_causal: whether a query sees the keys up to its own position alone. Without ``position_ids`` that of query
            ``i`` is ``i``, counted from the first key, as in PyTorch: of fewer queries than keys the first one sees the
            first key alone, and is not the one that follows a cache.
        scale: factor of the scores; None for ``1 / sqrt(length)``.
        cos: None, or the table of a rotary embedding, as :func:`rope` takes it, ``(positions, length)`` or
            ``(batch or 1, positions, length)``, of the dtype of ``q``; of each row the first half is used. Of a table
            with half as many columns pass ``torch.cat((cos, cos), -1)``.
            Queries and keys, of which there are as many, are then turned by it first, as halves of a row:
            ``attention(*rope(q, k, cos, sin, unsqueeze_dim=2), v)``; on a CPU without the turned ones in memory, nor
            rounded.
        sin: of the shape and dtype of ``cos``.
        position_ids: with ``is_causal``, None or the positions of the queries among the keys, int64 ``(positions,)`` or
            ``(batch or 1, positions)``, in any order: query ``i`` sees keys 0 to ``position_ids[i]``. Queries that
            follow what is in a cache have those of the keys that were written for them; what the cache has behind the
            last of a sequence is not read on a CPU. Together with ``cos`` it is refused: call :func:`rope` first.
        attn_mask: None, or which keys are seen, ``(batch or 1, heads or 1, queries or 1, keys)`` or the last two or
            three of these: of bool, where True is seen, or of the dtype of ``q``, and added to the scores. Together
            with ``is_causal`` a query sees the keys that both let it see. It is read as it lies, if its keys are
            adjacent, and not expanded. Where it requires a gradient, all gradients are computed by PyTorch's operators,
            with all scores in memory.
        window_size: with ``is_causal``, None or how many keys a query sees: at position ``p`` those from
            ``p - window_size + 1`` to ``p``. Blocks of keys before those of all queries of a block are not read.
        cu_seqlens_q: None, or where sequences begin that follow each other in a batch of 1, and where the last one
            ends, int32 or int64 ``(sequences + 1,)``, as flash-attn's ``flash_attn_varlen_func`` has it: queries see
            keys of their own sequence alone. Positions are counted from the first key of the sequence, also those in
            ``position_ids``. Not together with ``attn_mask`` or ``cos``.
        cu_seqlens_k: the same of keys; None where it is ``cu_seqlens_q``. Causal queries of sequences with other
            numbers of keys need ``position_ids``: flash-attn's count so that the last query sees the last key, and
            PyTorch's from the first one.

    Returns:
        A contiguous tensor of the shape and dtype of ``q``. Computed in float32, float64 for float64, and rounded once;
        on GPUs, for 16-bit dtypes, the factors of products are 16-bit numbers. For a query that sees no key it is zero,
        and so are its gradients, as with :func:`torch.nn.functional.scaled_dot_product_attention`.

    Raises:
        RuntimeError: a shape or dtype does not fit, or a query's position has no key; with the Triton backend, heads of
            more than 256 elements (128 of float64), of which blocks do not fit into a GPU's shared memory.
    """,
)
ATTENTION_TRAINING = Operator(
    "attention_training",
    reference=attention_training_reference,
    derivatives={
        "q, k, v": "attention_backward(grad_y, q, k, v, y, lse, is_causal, scale, cos, sin, position_ids, attn_mask, "
        "window_size, cu_seqlens_q, cu_seqlens_k)"
    },
    not_differentiable=("lse",),
    placements=(f"{_HEADS} -> S(2), S(1) {_EVENLY}",),
    invariant=RECORDED | {"batch": _BATCH | along(0, "y", "lse"), "prefix": _CAUSAL | {"y": 1, "lse": 2}},
    autocast="lower_precision",
)
ATTENTION_BACKWARD = Operator(
    "attention_backward",
    reference=attention_backward_reference,
    placements=(f"grad_output=S(2), {_HEADS}, y=S(2), lse=S(1) -> S(2), S(2), S(2) {_EVENLY}",),
    invariant=RECORDED | {"batch": _BATCH | along(0, "grad_output", "y", "lse", "result0", "result1", "result2")},
)
