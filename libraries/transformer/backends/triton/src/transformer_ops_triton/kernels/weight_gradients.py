"""The gradients of a norm's weight and bias: sums over all rows, in groups whose sums are added up at last."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import wide
from .language import load, rounded
from .launch import compute_dtype, launch

GROUPS, ROWS, COLUMNS = 64, 16, 128


@triton.jit(do_not_specialize=["rows", "rows_of_group"])
def _weight_gradients(
    grad,
    x,
    mean,
    rest,
    scale,
    d_weight,
    d_bias,
    grad_stride,
    x_stride,
    rows,
    rows_of_group,
    N: tl.constexpr,
    ROUNDS_FIRST: tl.constexpr,
    COMPUTE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    blocks = tl.cdiv(N, COLUMNS)
    group = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    weights = tl.zeros([ROWS, COLUMNS], COMPUTE)
    biases = tl.zeros([ROWS, COLUMNS], COMPUTE)
    for start in range(0, rows_of_group, ROWS):
        row = group.to(tl.int64) * rows_of_group + start + tl.arange(0, ROWS)
        there = row < rows
        mask = there[:, None] & (column < N)[None, :]
        gradient = load(grad, row[:, None] * grad_stride + column[None, :], mask, COMPUTE)
        value = load(x, row[:, None] * x_stride + column[None, :], mask, COMPUTE)
        if mean is not None:
            value -= load(mean, row, there, COMPUTE)[:, None]
            value -= load(rest, row, there, COMPUTE)[:, None]
            biases += gradient
        value *= load(scale, row, there, COMPUTE)[:, None]
        if ROUNDS_FIRST:
            value = rounded(value, x.dtype.element_ty).to(COMPUTE)
        weights += gradient * value
    at = group.to(tl.int64) * N + column
    tl.store(d_weight + at, tl.sum(weights, 0), mask=column < N)
    if mean is not None:
        tl.store(d_bias + at, tl.sum(biases, 0), mask=column < N)


def weight_gradients(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    means: tuple[Tensor, Tensor] | None = None,
    *,
    rounds_first: bool = False,
) -> tuple[Tensor, ...]:
    """Sums over all rows of ``grad * (x - mean) * scale``, and with means those of ``grad`` as well.

    Args:
        grad: ``(rows, length)``, the elements of a row one after the other.
        x: as ``grad``.
        scale: ``(rows,)``, in the dtype that is computed in.
        means: None, or each row's mean, and the rest that it is rounded by, as ``scale``.
        rounds_first: whether ``x * scale`` is rounded to the dtype of ``x``.

    Returns:
        One or two tensors ``(length,)`` of the dtype of ``x``.
    """
    rows, length = x.shape
    rows_of_group = triton.cdiv(triton.cdiv(rows, GROUPS), ROWS) * ROWS
    groups = triton.cdiv(rows, max(rows_of_group, 1))
    partial = [
        torch.empty(groups, length, dtype=wide(x.dtype), device=x.device) for _ in range(1 + (means is not None))
    ]
    launch(
        _weight_gradients,
        groups * triton.cdiv(length, COLUMNS),
        x,
        grad,
        x,
        *(means or (None, None)),
        scale,
        partial[0],
        partial[-1],
        grad.stride(0),
        x.stride(0),
        rows,
        rows_of_group,
        N=length,
        ROUNDS_FIRST=rounds_first,
        COMPUTE=compute_dtype(x.dtype),
        ROWS=ROWS,
        COLUMNS=COLUMNS,
    )
    return tuple(one.sum(0).to(x.dtype) for one in partial)
