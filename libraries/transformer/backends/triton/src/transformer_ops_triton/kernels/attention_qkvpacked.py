"""Attention of queries, keys and values that are views of one tensor, as their gradients are."""

from __future__ import annotations

from torch import Tensor

from .arguments import refuse
from .attention import attention_training, write_gradients


def attention_qkvpacked(
    qkv: Tensor, is_causal: bool, scale: float | None, cos: Tensor | None, sin: Tensor | None
) -> Tensor:
    """See ``transformer_ops.attention_qkvpacked``."""
    return attention_qkvpacked_training(qkv, is_causal, scale, cos, sin)[0]


def attention_qkvpacked_training(
    qkv: Tensor, is_causal: bool, scale: float | None, cos: Tensor | None, sin: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithm of each query's sum of ``exp(score)``, ``(batch, heads, positions)``."""
    return attention_training(*_parts(qkv), is_causal, scale, cos, sin)


def attention_qkvpacked_backward(
    grad_output: Tensor,
    qkv: Tensor,
    y: Tensor,
    lse: Tensor,
    is_causal: bool,
    scale: float | None,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor:
    """The gradient of ``qkv``."""
    gradient = qkv.new_empty(qkv.shape)
    write_gradients(_parts(gradient), grad_output, *_parts(qkv), y, lse, is_causal, scale, cos, sin)
    return gradient


def _parts(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if qkv.dim() != 5 or qkv.shape[2] != 3:
        refuse("qkv", f"has shape {tuple(qkv.shape)}, expected (batch, positions, 3, heads, length)")
    q, k, v = qkv.unbind(2)
    return q, k, v
