"""Softmax over the last dimension, and its logarithm."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor

from .invariance import OF_ROWS
from .precision import ROWS_UNDER_AUTOCAST, wide


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(wide(x), -1).to(x.dtype)


def _softmax_backward(grad_output: Tensor, y: Tensor) -> Tensor:
    # The sum of y is 1, but for what y is rounded by: it would be all that is left where one element is nearly 1.
    gradients, values = wide(grad_output), wide(y)
    mean = (gradients * values).sum(-1, keepdim=True) / values.sum(-1, keepdim=True)
    return (values * (gradients - mean)).to(y.dtype)


SOFTMAX = Operator(
    "softmax",
    reference=_softmax,
    rule=Rows(x=1),
    invariant=OF_ROWS,
    derivatives={"x": "softmax_backward(grad, result)"},
    autocast=ROWS_UNDER_AUTOCAST,
    doc="""``exp(x - max(x)) / sum(exp(x - max(x)))`` over the last dimension.

    Args:
        x: tensor of at least one dimension; float16, bfloat16, float32 or float64.

    Returns:
        A tensor of the shape and dtype of ``x``. Computed in float32, float64 for float64, and rounded once.

    Raises:
        RuntimeError: ``x`` is 0-d, or of another dtype.
    """,
)
SOFTMAX_BACKWARD = Operator(
    "softmax_backward",
    reference=_softmax_backward,
    rule=Rows(grad_output=1, y=1),
    invariant=OF_ROWS,
)


def _log_softmax(x: Tensor) -> Tensor:
    y = torch.log_softmax(wide(x), -1)
    if x.dim() == 0 or x.shape[-1] == 0:
        return y.to(x.dtype)
    # Of the largest element with the digits that torch.log_softmax rounds to those of 1; derivatives are its own.
    below = (wide(x) - wide(x).amax(-1, keepdim=True)).detach()
    is_largest = below == 0
    others = torch.where(is_largest, 0, below.exp()).sum(-1, keepdim=True)
    of_largest = -torch.log1p(others + (is_largest.sum(-1, keepdim=True) - 1))
    return torch.where(is_largest, y + (of_largest - y).detach(), y).to(x.dtype)


def _log_softmax_backward(grad_output: Tensor, y: Tensor) -> Tensor:
    gradients = wide(grad_output)
    return (gradients - wide(y).exp() * gradients.sum(-1, keepdim=True)).to(y.dtype)


LOG_SOFTMAX = Operator(
    "log_softmax",
    reference=_log_softmax,
    rule=Rows(x=1),
    invariant=OF_ROWS,
    derivatives={"x": "log_softmax_backward(grad, result)"},
    autocast=ROWS_UNDER_AUTOCAST,
    doc="""``x - max(x) - log(sum(exp(x - max(x))))`` over the last dimension.

    Args:
        x: tensor of at least one dimension; float16, bfloat16, float32 or float64.

    Returns:
        A tensor of the shape and dtype of ``x``. Computed in float32, float64 for float64, and rounded once; where one
        element has nearly all of the weight, its logarithm is that of the others' weight and not rounded to 0.

    Raises:
        RuntimeError: ``x`` is 0-d, or of another dtype.
    """,
)
LOG_SOFTMAX_BACKWARD = Operator(
    "log_softmax_backward",
    reference=_log_softmax_backward,
    rule=Rows(grad_output=1, y=1),
    invariant=OF_ROWS,
)
