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
    return _compute(loss, input, weight, target, bias, reduction, None)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, and its gradients by ``input``, ``weight`` and ``bias``; the last is empty where there is none."""
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap)
    d_input, d_weight = input.new_empty(input.shape), weight.new_zeros(weight.shape)
    d_bias = input.new_zeros(0 if bias is None else bias.shape)
    value = _compute(loss, input, weight, target, bias, reduction, (d_input, d_weight, d_bias))
    return value, d_input, d_weight, d_bias


def _compute(
    loss: Loss,
    input: Tensor,
    weight: Tensor,
    given_target: Tensor,
    given_bias: Tensor | None,
    reduction: str,
    gradients: tuple[Tensor, Tensor, Tensor] | None,
) -> Tensor:
    """The loss; each part's logits give way to their gradients, where those are wanted."""
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
    scale = torch.ones_like(total)
    if reduction == "mean":
        scale /= (target != loss.ignore_index).sum()
    for x, t, begin in zip(input.split(ROWS), target.split(ROWS), range(0, rows, ROWS), strict=True):
        logits = torch.nn.functional.linear(x, weight, given_bias)
        losses, _, lse = loss.forward(logits, t)
        total += losses.sum()
        if gradients is not None:
            loss.backward(scale.expand(len(x)), logits, t, lse, logits)
            d_input, d_weight, d_bias = gradients
            torch.mm(logits, weight, out=d_input[begin : begin + len(x)])
            d_weight.addmm_(logits.t(), x)
            if given_bias is not None:
                d_bias += logits.sum(0)
    return total * scale


@triton.jit
def _scaled(x, factor, y, columns, x_stride, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    row, at = elements(columns, BLOCK)
    mask = at < columns
    store(y + row * columns, at, mask, load(x + row * x_stride, at, mask, COMPUTE) * tl.load(factor))


def scaled(given: Tensor, factor: Tensor) -> Tensor:
    """``x * factor``, a tensor of no dimensions."""
    check_rows(given, "x")
    check_dtype(factor, "factor", wide(given.dtype))
    check_shape(factor, "factor")
    check_device(factor, "factor", given, "x")
    x, y = rows_of(given), given.new_empty(given.shape)
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
