"""Cross entropy of a linear layer's results, which are made a few rows at a time: never are all logits in memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import (
    FLOATING,
    check_device,
    check_dtype,
    check_rows,
    check_same,
    check_shape,
    refuse,
    rows_of,
    wide,
)
from .cross_entropy import Loss, targets
from .language import elements, load, store
from .launch import block_of, compute_dtype, launch

ROWS = 1024  # of logits at a time: enough for the matrix products to be fast
BLOCK = 1024


def fused_linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
    softcap: float,
) -> Tensor:
    """See ``transformer_ops.fused_linear_cross_entropy``."""
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap)
    return _compute(loss, input, weight, target, bias, reduction, None)[0]


def fused_linear_cross_entropy_training(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
    softcap: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The loss, its gradients by ``input``, ``weight`` and ``bias``, and their common factor.

    The last gradient is empty where there is no bias. The factor is not multiplied in, because 16-bit numbers would be
    too small: the gradient that arrives at the loss may be a large factor, made so that they are not. What is summed
    over rows is in the dtype that is computed in.
    """
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap)
    d_input, d_weight = input.new_empty(input.shape), weight.new_zeros(weight.shape, dtype=wide(weight.dtype))
    d_bias = input.new_zeros(0 if bias is None else bias.shape, dtype=wide(input.dtype))
    value, factor = _compute(loss, input, weight, target, bias, reduction, (d_input, d_weight, d_bias))
    return value, d_input, d_weight, d_bias, factor


def _compute(
    loss: Loss,
    input: Tensor,
    weight: Tensor,
    given_target: Tensor,
    given_bias: Tensor | None,
    reduction: str,
    gradients: tuple[Tensor, Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """The loss, and the factor of its gradients; each part's logits give way to them, where they are wanted."""
    loss.check()
    check_dtype(input, "input", *FLOATING)
    check_shape(input, "input", -1, -1)
    check_same(weight, "weight", input, "input")
    check_shape(weight, "weight", -1, input.shape[1])
    rows, classes = input.shape[0], weight.shape[0]
    if reduction not in ("mean", "sum"):
        refuse("reduction", f"is '{reduction}', expected 'mean' or 'sum'")
    if given_bias is not None:
        check_same(given_bias, "bias", input, "input")
        check_shape(given_bias, "bias", classes)
    target = targets(given_target, input, classes, loss.ignore_index)
    total = torch.zeros((), dtype=wide(input.dtype), device=input.device)
    one = torch.ones_like(total)
    counted = (target != loss.ignore_index).sum() if reduction == "mean" else one
    for x, t, begin in zip(input.split(ROWS), target.split(ROWS), range(0, rows, ROWS), strict=True):
        logits = torch.nn.functional.linear(x, weight, given_bias)
        losses, _, lse, lse_rest = loss.forward(logits, t)
        total += losses.sum()
        if gradients is not None:
            loss.backward(one.expand(len(x)), None, logits, t, lse, lse_rest, logits)
            d_input, d_weight, d_bias = gradients
            torch.mm(logits, weight, out=d_input[begin : begin + len(x)])
            if d_weight.dtype == x.dtype:
                d_weight.addmm_(logits.t(), x)
            else:
                d_weight += logits.t() @ x
            if given_bias is not None:
                d_bias += logits.sum(0, dtype=d_bias.dtype)
    # Rows that do not count have no gradient, not even where all are such.
    return total / counted, torch.where(counted > 0, one / counted, 0)


@triton.jit
def _scaled(x, factor, y, columns, x_stride, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    row, at = elements(columns, BLOCK)
    mask = at < columns
    store(y + row * columns, at, mask, load(x + row * x_stride, at, mask, COMPUTE) * tl.load(factor))


def scaled(given: Tensor, factor: Tensor, like: Tensor) -> Tensor:
    """``x * factor``, a tensor of no dimensions, in the dtype of ``like``."""
    check_rows(given, "x")
    check_dtype(like, "like", *FLOATING)
    check_device(like, "like", given, "x")
    check_shape(like, "like", *given.shape)
    check_dtype(given, "x", like.dtype, wide(like.dtype))
    check_dtype(factor, "factor", wide(like.dtype))
    check_shape(factor, "factor")
    check_device(factor, "factor", given, "x")
    x, y = rows_of(given), given.new_empty(given.shape, dtype=like.dtype)
    columns = x.shape[1]
    launch(
        _scaled,
        x.shape[0] * triton.cdiv(columns, BLOCK),
        x,
        x,
        factor,
        y,
        columns,
        x.stride(0),
        COMPUTE=compute_dtype(x.dtype),
        **block_of(BLOCK),
    )
    return y
