"""Attention of queries to keys and values, without all scores in memory."""

from __future__ import annotations

import torch
from opwheel import Operator
from torch import Tensor

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


def _check_positions(position_ids: Tensor | None, q: Tensor, is_causal: bool, cos: Tensor | None) -> None:
    if position_ids is None:
        return
    if not is_causal:
        raise RuntimeError("argument 'position_ids' is given, but without 'is_causal' queries see all keys; pass None")
    if cos is not None:
        raise RuntimeError("argument 'position_ids' is given, and so is 'cos'; turn queries and keys with rope() first")
    batches, queries = q.shape[:2]
    if position_ids.dtype != torch.int64 or position_ids.shape not in ((queries,), (1, queries), (batches, queries)):
        raise RuntimeError(
            f"argument 'position_ids' is {position_ids.dtype} of shape {tuple(position_ids.shape)}, expected "
            f"torch.int64 of shape ({queries},) or ({batches} or 1, {queries})"
        )


def _positions(q: Tensor, keys: int, position_ids: Tensor | None) -> Tensor:
    """Of the queries among the keys, ``(batch or 1, 1, queries, 1)``."""
    if position_ids is None:
        return torch.arange(q.shape[1], device=q.device).view(1, 1, -1, 1)
    every = torch.arange(keys, device=q.device)  # others are refused
    return every.index_select(0, position_ids.flatten()).view(-1, 1, q.shape[1], 1)


def _where_seen(x: Tensor, other: float, q: Tensor, is_causal: bool, position_ids: Tensor | None) -> Tensor:
    """What is known of each query and each key, and another number where the query does not see the key."""
    if not is_causal:
        return x
    keys = x.shape[-1]
    return torch.where(torch.arange(keys, device=q.device) <= _positions(q, keys, position_ids), x, other)


def _scores(q: Tensor, k: Tensor, is_causal: bool, scale: float | None, position_ids: Tensor | None) -> Tensor:
    heads = q.shape[2]
    scores = _heads_first(q, heads) @ _heads_first(k, heads).transpose(-1, -2) * _scaled(q, scale)
    return _where_seen(scores, -torch.inf, q, is_causal, position_ids)


def attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> Tensor:
    """The operator in terms of PyTorch's."""
    return attention_training_reference(q, k, v, is_causal, scale, cos, sin, position_ids)[0]


def attention_training_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`attention`, and of each query the logarithm of the sum of ``exp(score)``."""
    _check(q, k, v)
    _check_positions(position_ids, q, is_causal, cos)
    dtype = q.dtype
    q, k = _rotated(q, k, cos, sin)
    scores = _scores(q, k, is_causal, scale, position_ids)
    y = torch.softmax(scores, -1) @ _heads_first(v, q.shape[2])
    return y.transpose(1, 2).to(dtype), torch.logsumexp(scores, -1)


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
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``q``, ``k`` and ``v``, from what ``attention_training`` gave.

    The mean of ``dp`` is ``sum(grad_output * y)``, which takes less, but loses what ``y`` is rounded by; ``sum(p)`` is
    1, but for what ``lse`` is rounded by.
    """
    _check(q, k, v)
    _check_positions(position_ids, q, is_causal, cos)
    check_like(grad_output, "grad_output", q, "q")
    check_like(y, "y", q, "q")
    heads, shared, dtype = q.shape[2], k.shape[2], q.dtype
    q, k = _rotated(q, k, cos, sin)

    def seen(x: Tensor) -> Tensor:  # nan of a query is none of a key that it does not see, nor the other way round
        return _where_seen(x, 0.0, q, is_causal, position_ids)

    p = seen(torch.exp(_scores(q, k, is_causal, scale, position_ids) - lse.unsqueeze(-1)))
    gradients = _heads_first(grad_output, heads)
    dp = seen(gradients @ _heads_first(v, heads).transpose(-1, -2))
    mean = (p * dp).sum(-1, keepdim=True) / p.sum(-1, keepdim=True)
    ds = seen(p * (dp - mean)) * _scaled(q, scale)

    def of_shared(x: Tensor) -> Tensor:
        return x.unflatten(1, (shared, heads // shared)).sum(2) if shared not in (0, heads) else x

    dq = ds @ _heads_first(k, heads)
    dk = of_shared(ds.transpose(-1, -2) @ _heads_first(q, heads))
    dv = of_shared(p.transpose(-1, -2) @ gradients)
    dq, dk, dv = (x.transpose(1, 2) for x in (dq, dk, dv))
    if cos is not None and sin is not None:
        dq, dk = rotated(dq, cos, -sin, 2), rotated(dk, cos, -sin, 2)
    return dq.to(dtype), dk.to(dtype), dv.to(dtype)


# A token and what comes after it, of which it sees nothing.
_CAUSAL = along(1, "q", "k", "v") | along(-2, "cos", "sin") | {"is_causal": True, "position_ids": None}
_BATCH = along(0, "q", "k", "v") | along(-3, "cos", "sin") | {"position_ids": -2}
ATTENTION = Operator(
    "attention",
    reference=attention_reference,
    invariant=RECORDED
    | {
        "batch": (_BATCH | {"result": 0}, along(1, "q", "result") | {"is_causal": False, "cos": None}),
        "prefix": _CAUSAL | {"result": 1},
    },
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

    Returns:
        A contiguous tensor of the shape and dtype of ``q``. Computed in float32, float64 for float64, and rounded once;
        on GPUs, for 16-bit dtypes, the factors of products are 16-bit numbers. Without keys it is zero.

    Raises:
        RuntimeError: a shape or dtype does not fit, or a query's position has no key; with the Triton backend, heads of
            more than 256 elements (128 of float64), of which blocks do not fit into a GPU's shared memory.
    """,
)
ATTENTION_TRAINING = Operator(
    "attention_training",
    reference=attention_training_reference,
    derivatives={"q, k, v": "attention_backward(grad_y, q, k, v, y, lse, is_causal, scale, cos, sin, position_ids)"},
    not_differentiable=("lse",),
    invariant=RECORDED | {"batch": _BATCH | along(0, "y", "lse"), "prefix": _CAUSAL | {"y": 1, "lse": 2}},
    autocast="lower_precision",
)
ATTENTION_BACKWARD = Operator(
    "attention_backward",
    reference=attention_backward_reference,
    invariant=RECORDED | {"batch": _BATCH | along(0, "grad_output", "y", "lse", "result0", "result1", "result2")},
)
