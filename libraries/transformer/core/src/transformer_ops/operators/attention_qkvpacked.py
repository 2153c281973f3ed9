"""Attention of queries, keys and values that lie in one tensor, as one linear layer for all three makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from opwheel import Operator
from opwheel.dispatch import ErrorSample, Sample
from torch import Tensor

from .attention import (
    BACKWARD_TOLERANCE,
    TOLERANCE,
    attention_backward_reference,
    attention_reference,
    attention_training_reference,
    sdpa_of_rows,
)
from .samples import randn, rotations


def _unpacked(qkv: Tensor) -> tuple[Tensor, ...]:
    if qkv.dim() != 5 or qkv.shape[2] != 3:
        raise RuntimeError(
            f"argument 'qkv' has shape {tuple(qkv.shape)}, expected (batch, positions, 3, heads, length)"
        )
    return qkv.unbind(2)


def _of_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of queries, keys and values as one of the tensor that has all three."""
    return lambda qkv, *options: function(*_unpacked(qkv), *options)


_attention_training = _of_parts(attention_training_reference)


def _attention_backward(
    grad_output: Tensor,
    qkv: Tensor,
    y: Tensor,
    lse: Tensor,
    is_causal: bool,
    scale: float | None,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor:
    q, k, v = _unpacked(qkv)
    return torch.stack(attention_backward_reference(grad_output, q, k, v, y, lse, is_causal, scale, cos, sin), 2)


_Call = tuple[Tensor, bool, float | None, Tensor | None, Tensor | None]


def _arguments(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[_Call]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    yield make(2, 3, 3, 2, 5), True, None, None, None
    cos, sin = rotations(34, 2, device=device, dtype=dtype)
    yield make(1, 34, 3, 1, 2), False, 0.5, cos, sin


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in _arguments(device, dtype, requires_grad):
        yield Sample(*arguments)


def _backward_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in _arguments(device, dtype, requires_grad):
        with torch.no_grad():
            y, lse = _attention_training(*arguments)
        kept = (y.contiguous().requires_grad_(requires_grad), lse.requires_grad_(requires_grad))
        grad_output = randn(*y.shape, device=device, dtype=dtype, requires_grad=requires_grad)
        yield Sample(grad_output, arguments[0], *kept, *arguments[1:])


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    yield Sample(randn(16, 256, 3, 4, 64, device=device, dtype=dtype, requires_grad=requires_grad), True)


def _errors(device: str) -> Iterator[ErrorSample]:
    qkv = torch.ones(2, 4, 3, 3, 8, device=device)
    table = torch.ones(4, 8, device=device)
    yield ErrorSample(Sample(qkv[:, :, 0]), RuntimeError)
    yield ErrorSample(Sample(qkv[:, :, :2]), RuntimeError)
    yield ErrorSample(Sample(qkv, False, None, table, None), RuntimeError)
    yield ErrorSample(Sample(qkv, False, None, table[:3], table[:3]), RuntimeError)


ATTENTION_QKVPACKED = Operator(
    "attention_qkvpacked",
    reference=_of_parts(attention_reference),
    training="attention_qkvpacked_training",
    tolerance=TOLERANCE,
    samples=_samples,
    measured=_measured,
    peers={"F.scaled_dot_product_attention": _of_parts(sdpa_of_rows)},
    errors=_errors,
    doc="""``attention(*qkv.unbind(2))``, with a gradient in one tensor.

    What :func:`attention` gives for the three are three tensors, which PyTorch then has to copy into one.

    Args:
        qkv: queries, keys and values, ``(batch, positions, 3, heads, length)``; float16, bfloat16, float32 or float64.
        is_causal: whether query ``i`` sees keys 0 to ``i`` alone.
        scale: factor of the scores; None for ``1 / sqrt(length)``.
        cos: None, or the table of a rotary embedding, as :func:`attention` takes it.
        sin: of the shape and dtype of ``cos``.

    Returns:
        A contiguous tensor, ``(batch, positions, heads, length)``, of the dtype of ``qkv``.

    Raises:
        RuntimeError: as :func:`attention`.
    """,
)
ATTENTION_QKVPACKED_TRAINING = Operator(
    "attention_qkvpacked_training",
    reference=_attention_training,
    derivatives={"qkv": "attention_qkvpacked_backward(grad_y, qkv, y, lse, is_causal, scale, cos, sin)"},
    not_differentiable=("lse",),
    samples=_samples,
    tolerance=TOLERANCE,
)
ATTENTION_QKVPACKED_BACKWARD = Operator(
    "attention_qkvpacked_backward",
    reference=_attention_backward,
    samples=_backward_samples,
    tolerance=BACKWARD_TOLERANCE,
)
