"""Layer normalisation."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor

from .invariance import OF_ROWS, rows_of
from .precision import ROWS_UNDER_AUTOCAST, wide


def _layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    values = wide(x)
    centred = values - values.mean(-1, keepdim=True)
    values = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    if weight is not None:
        values = values * wide(weight)
    if bias is not None:
        values = values + wide(bias)
    return values.to(x.dtype)


def _layer_norm_backward(
    grad_output: Tensor, x: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    gradients, values = wide(grad_output), wide(x)
    centred = values - values.mean(-1, keepdim=True)
    r = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    normalised = centred * r
    weighted = gradients if weight is None else gradients * wide(weight)
    inner = (weighted * normalised).mean(-1, keepdim=True)
    d_x = r * (weighted - weighted.mean(-1, keepdim=True) - normalised * inner)
    n = x.shape[-1]
    d_weight, d_bias = ((gradients * f).reshape(-1, n).sum(0) for f in (normalised, torch.ones_like(normalised)))
    return d_x.to(x.dtype), d_weight.to(x.dtype), d_bias.to(x.dtype)


LAYER_NORM = Operator(
    "layer_norm",
    reference=_layer_norm,
    rule=Rows(x=1),
    derivatives={"x, weight, bias": "layer_norm_backward(grad, x, weight, eps)"},
    autocast=ROWS_UNDER_AUTOCAST,
    invariant=OF_ROWS,
    doc="""Normalise each row to mean 0 and variance 1: ``(x - mean) / sqrt(variance + eps) * weight + bias``.

    Mean and variance (divided by the row's length) are over the last dimension (Ba, Kiros and Hinton 2016,
    https://arxiv.org/abs/1607.06450). Computed in float32, float64 for float64, and rounded once.

    Args:
        x: tensor of at least one dimension; float16, bfloat16, float32 or float64.
        weight: None, or a tensor of the last dimension's size and of the dtype of ``x``.
        bias: as ``weight``.
        eps: added to the variance.

    Returns:
        A tensor of the shape and dtype of ``x``.

    Raises:
        RuntimeError: a shape or dtype does not fit.
    """,
)
LAYER_NORM_BACKWARD = Operator(
    "layer_norm_backward",
    reference=_layer_norm_backward,
    invariant=rows_of(("result0",), "grad_output", "x"),
)
