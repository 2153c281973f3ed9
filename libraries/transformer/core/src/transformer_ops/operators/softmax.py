"""Softmax over the last dimension."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel import Operator, Rows
from opwheel.dispatch import Sample
from torch import Tensor

from .samples import SHAPES, measured, randn, wide


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(wide(x), -1).to(x.dtype)


def _softmax_backward(grad: Tensor, y: Tensor) -> Tensor:
    gradients, values = wide(grad), wide(y)
    return (values * (gradients - (gradients * values).sum(-1, keepdim=True))).to(y.dtype)


def _samples(device: str, dtype: torch.dtype, requires_grad: bool, *, inputs: int = 1) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in SHAPES:
        yield Sample(*(make(*shape) for _ in range(inputs)))


SOFTMAX = Operator(
    "softmax",
    reference=_softmax,
    rule=Rows(x=1),
    derivatives={"x": "softmax_backward(grad, result)"},
    samples=_samples,
    measured=measured(1),
    peers={"F.softmax": lambda x: torch.softmax(x, -1)},
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
    rule=Rows(grad=1, y=1),
    samples=partial(_samples, inputs=2),
)
