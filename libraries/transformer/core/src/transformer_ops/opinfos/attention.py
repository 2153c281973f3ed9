"""Calls of attention for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample, Tolerance
from torch import Tensor

from ..operators.attention import attention_training_reference
from ..operators.rope import rotated
from .tensors import confident_rows, randn, rotations

_Call = tuple[Any, ...]


def _arguments(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[_Call]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    yield make(2, 3, 2, 5), make(2, 3, 2, 5), make(2, 3, 2, 5), True, None, None, None, None
    yield make(1, 2, 4, 20), make(1, 3, 2, 20), make(1, 3, 2, 20), False, 0.5, None, None, None
    after_a_cache = torch.tensor([[3, 4], [0, 1]], device=device)
    yield make(2, 2, 2, 6), make(2, 6, 1, 6), make(2, 6, 1, 6), True, None, None, None, after_a_cache
    yield make(2, 2, 4, 3), make(2, 6, 2, 3), make(2, 6, 2, 3), True, None, None, None, after_a_cache
    cos, sin = rotations(34, 2, device=device, dtype=dtype)
    yield make(2, 34, 4, 2), make(2, 34, 2, 2), make(2, 34, 2, 2), True, None, cos, sin, None
    seen = torch.ones(1, 4, 3, 7, dtype=torch.bool, device=device).tril(2)
    seen[:, 1, 2] = False  # a query that sees no key
    yield make(2, 3, 4, 6), make(2, 7, 2, 6), make(2, 7, 2, 6), False, None, None, None, None, seen
    added = randn(2, 1, 1, 6, device=device, dtype=dtype)
    added[0, ..., 3:] = -torch.inf  # a shorter sequence, as padding has it
    yield make(2, 2, 2, 5), make(2, 6, 1, 5), make(2, 6, 1, 5), True, None, None, None, after_a_cache, added, 3
    filled = torch.arange(6, device=device) < torch.tensor([6, 2], device=device).view(2, 1, 1, 1)
    yield make(2, 2, 4, 3), make(2, 6, 2, 3), make(2, 6, 2, 3), True, None, None, None, after_a_cache, filled
    starts = torch.tensor([0, 4, 4, 9], dtype=torch.int32, device=device)
    yield *(make(1, 9, 2, 5) for _ in range(3)), True, None, None, None, None, None, 3, starts, starts


def _confident(device: str, dtype: torch.dtype, requires_grad: bool) -> _Call:
    """Of each query one key has nearly all of the weight."""
    sure = confident_rows(8, device=device, dtype=dtype)[None, :4, None].requires_grad_(requires_grad)
    same = torch.eye(8, device=device, dtype=dtype)[None, :, None].requires_grad_(requires_grad)  # scores are queries
    # The same values on every device: of these, y in 16 bits is rounded by more than what is left of the gradients.
    v = (1.5 * (0.3 * torch.arange(64.0)).sin()).view(1, 8, 1, 8).to(device, dtype).requires_grad_(requires_grad)
    return sure, same, v, False, 1.0, None, None, None


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in (*_arguments(device, dtype, requires_grad), _confident(device, dtype, requires_grad)):
        yield Sample(*arguments)


def _backward_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in (*_arguments(device, dtype, requires_grad), _confident(device, dtype, requires_grad)):
        q, k, v = arguments[:3]
        with torch.no_grad():
            y, lse = attention_training_reference(*arguments)
        kept = (y.contiguous().requires_grad_(requires_grad), lse.requires_grad_(requires_grad))
        grad_output = randn(*q.shape, device=device, dtype=dtype, requires_grad=requires_grad)
        yield Sample(grad_output, q, k, v, *kept, *arguments[3:])


def sdpa_of_rows(
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
    """PyTorch's own attention, in this order of dimensions; it has no windows and no packed sequences."""
    if any(one is not None for one in (window_size, cu_seqlens_q, cu_seqlens_k)):
        raise NotImplementedError("scaled_dot_product_attention takes no window_size and no cu_seqlens")
    if cos is not None and sin is not None:
        q, k = (rotated(x, cos, sin, 2) for x in (q, k))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    seen = attn_mask
    if position_ids is not None:
        seen = torch.arange(k.shape[2], device=k.device) <= position_ids.view(-1, 1, q.shape[2], 1)
    y = torch.nn.functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=seen,
        is_causal=is_causal and seen is None,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return y.transpose(1, 2)


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in ((1, 1024, 16, 128), (16, 256, 4, 64)):
        yield Sample(*(make(*shape) for _ in range(3)), True)
    if requires_grad:
        return
    for heads, shared, length in ((32, 8, 128), (12, 2, 64)):  # what follows a cache
        for queries in (1, 4, 16):
            yield Sample(make(1, queries, heads, length), *(make(1, 2048, shared, length) for _ in range(2)))
    padded = torch.arange(512, device=device) < torch.tensor([512, 300], device=device).view(2, 1, 1, 1)
    yield Sample(*(make(2, 512, 8, 64) for _ in range(3)), attn_mask=padded)


def _errors(device: str) -> Iterator[ErrorSample]:
    q = torch.ones(2, 4, 3, 8, device=device)
    yield ErrorSample(Sample(q, q[:, :, :2], q[:, :, :2]), RuntimeError)
    yield ErrorSample(Sample(q, q, q[:, :2]), RuntimeError)
    yield ErrorSample(Sample(q, q[..., :4], q[..., :4]), RuntimeError)
    yield ErrorSample(Sample(q[0], q[0], q[0]), RuntimeError)
    yield ErrorSample(Sample(q, q.double(), q.double()), RuntimeError)
    table, few = torch.ones(4, 8, device=device), q[:, :3]
    for cos, sin in ((table, None), (None, table), (table[:3], table[:3]), (table[:, :4], table[:, :4])):
        yield ErrorSample(Sample(q, q, q, False, None, cos, sin), RuntimeError)
    yield ErrorSample(Sample(q, few, few, False, None, table, table), RuntimeError)
    ids = torch.arange(4, device=device)
    yield ErrorSample(Sample(q, q, q, False, None, None, None, ids), RuntimeError, "'position_ids'")
    yield ErrorSample(Sample(q, q, q, True, None, table, table, ids), RuntimeError, "'position_ids'")
    for wrong in (ids[:3], ids.expand(3, 4), ids.expand(1, 2, 4), ids.int()):
        yield ErrorSample(Sample(q, q, q, True, None, None, None, wrong), RuntimeError, "'position_ids'")
    for beyond in (ids + 1, ids - 1):
        yield ErrorSample(Sample(q, q, q, True, None, None, None, beyond), (RuntimeError, IndexError), by_values=True)
    for wrong in (q[0, 0, 0] > 0, q.transpose(1, 2) > 0, torch.ones(4, 4, device=device, dtype=torch.int64)):
        yield ErrorSample(Sample(q, q, q, attn_mask=wrong), RuntimeError, "'attn_mask'")
    yield ErrorSample(Sample(q, q, q, window_size=2), RuntimeError, "'window_size'")
    yield ErrorSample(Sample(q, q, q, True, window_size=0), RuntimeError, "'window_size'")
    yield from _errors_of_sequences(q[:1])


def _errors_of_sequences(q: Tensor) -> Iterator[ErrorSample]:
    starts, few, ids = (torch.tensor(values, device=q.device) for values in ([0, 1, 4], [0, 1, 3], range(4)))
    table, mask = torch.ones(4, 8, device=q.device), torch.ones(4, 4, device=q.device) > 0
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"cu_seqlens_k": starts}, "cu_seqlens_k"),
        ({"cu_seqlens_q": starts, "cu_seqlens_k": starts[1:]}, "cu_seqlens_k"),
        ({"cu_seqlens_q": starts.float()}, "cu_seqlens_q"),
        ({"cu_seqlens_q": starts[None]}, "cu_seqlens_q"),
        ({"cu_seqlens_q": starts[:0]}, "cu_seqlens_q"),
        ({"cu_seqlens_q": starts, "attn_mask": mask}, "attn_mask"),
        ({"cu_seqlens_q": starts, "cos": table, "sin": table}, "cos"),
    )
    for given, name in refused:
        yield ErrorSample(Sample(q, q, q, True, **given), RuntimeError, f"'{name}'")
    yield ErrorSample(Sample(*[q.expand(2, -1, -1, -1)] * 3, cu_seqlens_q=starts), RuntimeError, "'q'")
    yield ErrorSample(Sample(q, q[:, :3], q[:, :3], cu_seqlens_q=starts), RuntimeError, "'k'")
    others = torch.tensor([0, 2, 4], device=q.device)
    wrong_values: tuple[dict[str, Any], ...] = (
        {"cu_seqlens_q": few},
        {"cu_seqlens_q": starts + 1},
        {"cu_seqlens_q": starts.flip(0)},
        {"is_causal": True, "cu_seqlens_q": starts, "cu_seqlens_k": others},
        {"is_causal": True, "cu_seqlens_q": starts, "cu_seqlens_k": others, "position_ids": ids},
    )
    for given in wrong_values:
        yield ErrorSample(Sample(q, q, q, **given), (RuntimeError, IndexError), by_values=True)


# On GPUs factors of products are rounded to 16 bits, turned queries and keys too, and weights are exp() of that.
TOLERANCE = {dtype: Tolerance(*[2 * torch.finfo(dtype).eps] * 2) for dtype in (torch.float16, torch.bfloat16)}
BACKWARD_TOLERANCE = {
    torch.float64: Tolerance(1e-13, 1e-13),  # sums of products of sums, in another order
    torch.float32: Tolerance(1e-5, 1e-5),  # the same
    torch.float16: Tolerance(4e-3, 4e-3),
    torch.bfloat16: Tolerance(3e-2, 3e-2),
}

INFOS = {
    "attention": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=_measured,
        baselines={"F.scaled_dot_product_attention": sdpa_of_rows},
        tolerance=TOLERANCE,
    ),
    "attention_training": OpInfo(samples=_samples, tolerance=TOLERANCE),
    "attention_backward": OpInfo(samples=_backward_samples, tolerance=BACKWARD_TOLERANCE),
}
