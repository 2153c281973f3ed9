"""Kernels for PyTorch's own operators: what :func:`transformer_ops.accelerate_torch` switches on.

``when`` says where the results are PyTorch's to the letter, ``fast`` for which sizes the kernel is mostly faster than
PyTorch's: ``benchmarks/foreign.py`` measures it. Functions have the arguments of PyTorch's operators, by the same
names.
"""
# ruff: noqa: A002, ARG001

from __future__ import annotations

from collections.abc import Callable

import torch
from opwheel import ForeignKernel
from torch import Tensor

_ops = torch.ops.transformer_ops
# Without eps, PyTorch takes that of the dtype that it computes in.
_EPS = torch.finfo(torch.float32).eps
_FLOATING = "in (float32, bfloat16)"


def _rms_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    y: Tensor = _ops.rms_norm(input, weight, _EPS if eps is None else eps, 0.0, "none")
    return y


def _layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    y: Tensor = _ops.layer_norm(input, weight, bias, eps)
    return y


def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    y: Tensor = _ops.softmax(self)
    return y


def _softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    d: Tensor = _ops.softmax_backward(grad_output, output)
    return d


def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    y: Tensor = _ops.log_softmax(self)
    return y


def _log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    d: Tensor = _ops.log_softmax_backward(grad_output, output)
    return d


_WORDS = ("none", "mean", "sum")
_NONE, _MEAN, _SUM = range(3)  # at::Reduction


def _cross_entropy_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    try:
        losses: Tensor = _ops.cross_entropy_rows(self, target, None, ignore_index, 0.0, 0.0, 0.0)[0]
    except RuntimeError:  # a target is no class: PyTorch's own parts say so in its words
        logs = torch.log_softmax(self, 1)
        return torch.nn.functional.nll_loss(logs, target, ignore_index=ignore_index, reduction=_WORDS[reduction])
    if reduction == _MEAN:
        losses = losses.sum() / (target != ignore_index).sum()
    elif reduction == _SUM:
        losses = losses.sum()
    return losses.to(self.dtype)


def _heads_second(*tensors: Tensor) -> list[Tensor]:
    """Of ``(batch, heads, positions, length)`` as ``(batch, positions, heads, length)``, and back."""
    return [tensor.transpose(1, 2) for tensor in tensors]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    y, lse = _ops.attention_training(*_heads_second(query, key, value), is_causal, scale)
    y = y.transpose(1, 2)
    # In memory PyTorch's kernel has them in this order.
    return y.contiguous() if query.is_contiguous() else y, lse.transpose(1, 2).contiguous().transpose(1, 2)


def _attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    grad, q, k, v, y = _heads_second(grad_out, query, key, value, out)
    d_q, d_k, d_v = _ops.attention_backward(grad, q, k, v, y, logsumexp, is_causal, scale, None, None, None)
    return d_q.transpose(1, 2), d_k.transpose(1, 2), d_v.transpose(1, 2)


_ROW_PARAMETER = "{0} is None or ({0}.dtype == input.dtype and {0}.dim() == 1 and {0}.is_contiguous())"
_SAME_HEADS = (
    "query.dtype == key.dtype and query.dtype == value.dtype",
    "query.dim() == 4 and key.dim() == 4 and value.dim() == 4",
    "query.shape[1] == key.shape[1] and key.shape[1] == value.shape[1]",
    "query.shape[0] == key.shape[0] and key.shape[0] == value.shape[0]",
    "query.shape[3] == key.shape[3] and key.shape[3] == value.shape[3]",
    "key.shape[2] == value.shape[2] and key.numel() > 0",
    "attn_mask is None and dropout_p == 0.0",
)
# Of the query the result has the layout: heads before positions, or as linear layers give them, the other way round.
_LAID_OUT = (
    "query.is_contiguous() or (query.stride(3) == 1 and query.stride(1) == query.shape[3] and "
    "query.stride(2) == query.shape[1] * query.shape[3] and "
    "query.stride(0) == query.shape[1] * query.shape[2] * query.shape[3])"
)


def _of_last_dimension(
    name: str, forward: Callable[..., Tensor], backward: Callable[..., Tensor], fast: str
) -> tuple[ForeignKernel, ForeignKernel]:
    """Softmax or its logarithm, both passes; ``fast`` is for whichever tensor ``{0}`` stands for."""
    of_input = ForeignKernel(
        f"aten::_{name}",
        forward,
        name=name,
        when=(
            f"self.dtype {_FLOATING} and self.numel() > 0",
            "not half_to_float",
            "self.dim() >= 1 and (dim == -1 or dim + 1 == self.dim())",
            "self.is_contiguous()",
        ),
        uses=(name,),
        fast=(fast.format("self"),),
    )
    of_gradient = ForeignKernel(
        f"aten::_{name}_backward_data",
        backward,
        name=name,
        when=(
            f"output.dtype {_FLOATING} and output.numel() > 0",
            "grad_output.dtype == output.dtype and input_dtype == output.dtype",
            "output.dim() >= 1 and grad_output.dim() == output.dim() and (dim == -1 or dim + 1 == output.dim())",
            "grad_output.is_contiguous() and output.is_contiguous()",
        ),
        uses=(f"{name}_backward",),
        fast=(fast.format("output"),),
    )
    return of_input, of_gradient


FOREIGN = (
    ForeignKernel(
        "aten::rms_norm",
        _rms_norm,
        when=(
            f"input.dtype {_FLOATING} and input.numel() > 0",
            "len(normalized_shape) == 1 and input.dim() >= 1 and normalized_shape[0] == input.shape[-1]",
            _ROW_PARAMETER.format("weight"),
            "weight is None or weight.shape[0] == input.shape[-1]",
            "input.is_contiguous()",
        ),
        uses=("rms_norm", "rms_norm_backward"),
        fast=("input.numel() >= 2**12",),
    ),
    ForeignKernel(
        "aten::layer_norm",
        _layer_norm,
        when=(
            f"input.dtype {_FLOATING} and input.numel() > 0",
            "len(normalized_shape) == 1 and input.dim() >= 1 and normalized_shape[0] == input.shape[-1]",
            _ROW_PARAMETER.format("weight"),
            _ROW_PARAMETER.format("bias"),
            "weight is None or weight.shape[0] == input.shape[-1]",
            "bias is None or bias.shape[0] == input.shape[-1]",
            "input.is_contiguous()",
        ),
        uses=("layer_norm", "layer_norm_backward"),
        fast=(
            "input.numel() >= 2**18 and 64 <= input.shape[-1] <= 4096",
            # With the backward pass, few long rows are slower.
            "input.shape[-1] <= 512 or input.numel() >= 2**20",
            "input.dtype == bfloat16 or (input.shape[-1] >= 512 and input.numel() >= 2**22)",
        ),
    ),
    *_of_last_dimension(
        "softmax",
        _softmax,
        _softmax_backward,
        "{0}.numel() >= 2**18 and ({0}.dtype == bfloat16 or {0}.shape[-1] <= 4096 or {0}.numel() >= 2**21)",
    ),
    *_of_last_dimension(
        "log_softmax",
        _log_softmax,
        _log_softmax_backward,
        "{0}.numel() >= 2**18 and {0}.shape[-1] >= 512",
    ),
    ForeignKernel(
        "aten::cross_entropy_loss",
        _cross_entropy_loss,
        when=(
            f"self.dtype {_FLOATING} and self.numel() > 0",
            "self.dim() == 2 and target.dim() == 1 and target.dtype == int64 and target.shape[0] == self.shape[0]",
            "weight is None and label_smoothing == 0.0",
            "reduction in (0, 1, 2)",
            "self.is_contiguous() and target.is_contiguous()",
        ),
        uses=("cross_entropy_rows", "cross_entropy_backward"),
        fast=("self.numel() >= 2**18 and self.shape[-1] >= 512",),
    ),
    ForeignKernel(
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        _attention,
        name="scaled_dot_product_attention",
        when=(
            f"query.dtype {_FLOATING} and query.numel() > 0",
            *_SAME_HEADS,
            _LAID_OUT,
        ),
        uses=("attention_training",),
        fast=("query.numel() >= 2**16 and is_causal and query.shape[-1] <= 128",),
    ),
    ForeignKernel(
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        _attention_backward,
        name="scaled_dot_product_attention",
        when=(
            f"query.dtype {_FLOATING} and query.numel() > 0",
            *_SAME_HEADS,
            "grad_out.dtype == query.dtype and out.dtype == query.dtype and logsumexp.dtype == float32",
        ),
        uses=("attention_backward",),
        fast=("query.numel() >= 2**16 and is_causal and query.shape[-1] <= 128",),
    ),
)
