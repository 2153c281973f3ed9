"""Layer normalisation."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor

from .invariance import OF_ROWS, rows_of
from .means import Means, row_means, sharded_rows, sum_of_rows
from .precision import ROWS_UNDER_AUTOCAST, wide


def _layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    return _normalised(row_means, x, weight, bias, eps)


def _normalised(means: Means, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    values = wide(x)
    centred = values - means(values)[0]
    values = centred * torch.rsqrt(means(centred.pow(2))[0] + eps)
    if weight is not None:
        values = values * wide(weight)
    if bias is not None:
        values = values + wide(bias)
    return values.to(x.dtype)


def _layer_norm_backward(
    grad_output: Tensor, x: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients(row_means, grad_output, x, weight, eps)


def _gradients(
    means: Means, grad_output: Tensor, x: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    gradients, values = wide(grad_output), wide(x)
    weighted = gradients if weight is None else gradients * wide(weight)
    mean, mean_gradient = means(values, weighted)
    centred = values - mean
    variance, product = means(centred.pow(2), weighted * centred)
    r = torch.rsqrt(variance + eps)
    normalised = centred * r
    d_x = r * (weighted - mean_gradient - normalised * (product * r))
    d_weight, d_bias = sum_of_rows(gradients * normalised), sum_of_rows(gradients)
    return d_x.to(x.dtype), d_weight.to(x.dtype), d_bias.to(x.dtype)


LAYER_NORM = Operator(
    "layer_norm",
    reference=_layer_norm,
    rule=Rows(x=1),
    derivatives={"x, weight, bias": "layer_norm_backward(grad, x, weight, eps)"},
    sharded=sharded_rows("x=S(-1), weight=S(0), bias=S(0) -> S(-1)", _normalised),
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
    sharded=sharded_rows("x=S(-1), grad_output=S(-1), weight=S(0) -> S(-1), S(0), S(0)", _gradients),
    invariant=rows_of(("result0",), "grad_output", "x"),
)
