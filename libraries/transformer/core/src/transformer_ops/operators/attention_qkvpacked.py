"""Attention of queries, keys and values that lie in one tensor, as one linear layer for all three makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from opwheel import Operator
from torch import Tensor

from .attention import (
    attention_backward_reference,
    attention_reference,
    attention_training_reference,
)
from .invariance import RECORDED, along


def _unpacked(qkv: Tensor) -> tuple[Tensor, ...]:
    if qkv.dim() != 5 or qkv.shape[2] != 3:
        raise RuntimeError(
            f"argument 'qkv' has shape {tuple(qkv.shape)}, expected (batch, positions, 3, heads, length)"
        )
    return qkv.unbind(2)


def of_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of queries, keys and values as one of the tensor that has all three."""
    return lambda qkv, *options: function(*_unpacked(qkv), *options)


_attention_training = of_parts(attention_training_reference)


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


_CAUSAL = along(1, "qkv") | along(-2, "cos", "sin") | {"is_causal": True}
ATTENTION_QKVPACKED = Operator(
    "attention_qkvpacked",
    reference=of_parts(attention_reference),
    invariant=RECORDED
    | {"batch": along(0, "qkv", "result") | along(-3, "cos", "sin"), "prefix": _CAUSAL | {"result": 1}},
    training="attention_qkvpacked_training",
    autocast="lower_precision",
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
    invariant=RECORDED
    | {"batch": along(0, "qkv", "y", "lse") | along(-3, "cos", "sin"), "prefix": _CAUSAL | {"y": 1, "lse": 2}},
    autocast="lower_precision",
)
ATTENTION_QKVPACKED_BACKWARD = Operator(
    "attention_qkvpacked_backward",
    reference=_attention_backward,
    invariant=RECORDED | {"batch": along(0, "grad_output", "qkv", "y", "lse", "result") | along(-3, "cos", "sin")},
)
