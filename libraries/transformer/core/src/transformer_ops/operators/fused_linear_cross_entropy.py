"""Cross entropy of a linear layer's results, which are never in memory all at once."""

from __future__ import annotations

import torch
from opwheel import Autocast, Operator, Rows, ShardedReduction
from torch import Tensor

from .checks import check_shape
from .cross_entropy import cross_entropy_backward_reference, cross_entropy_rows_reference
from .log_sums import of_largest_weight, targets_of
from .precision import wide
from .weight_shards import backward_of_shards, loss_of_shards, rows_of_shards, training_of_shards

# As torch.nn.functional.linear and cross_entropy.
_AUTOCAST = Autocast(
    {
        "input": "lower_precision",
        "weight": "lower_precision",
        "bias": "lower_precision",
        "class_weight": "float32",
        "token_weight": "float32",
    }
)


def _fused_linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float = 0.0,
    class_weight: Tensor | None = None,
    token_weight: Tensor | None = None,
) -> Tensor:
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"reduction is {reduction!r}, expected 'mean' or 'sum'; for 'none' there is linear_cross_entropy_rows"
        )
    logits = torch.nn.functional.linear(input, weight, bias)
    options = (ignore_index, lse_square_scale, label_smoothing, softcap)
    return cross_entropy_rows_reference(logits, target, class_weight, *options, reduction, token_weight)[0]


def _fused_linear_cross_entropy_training(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float = 0.0,
    class_weight: Tensor | None = None,
    token_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    options = (ignore_index, lse_square_scale, label_smoothing, softcap)
    loss = _fused_linear_cross_entropy(
        input, weight, target, bias, *options[:3], reduction, softcap, class_weight, token_weight
    )
    logits = torch.nn.functional.linear(input, weight, bias)
    _, kept = cross_entropy_rows_reference(logits, target, class_weight, *options, "none", token_weight)
    targets = targets_of(target, class_weight, token_weight, ignore_index, len(weight), wide(logits))
    kept, factor = of_largest_weight(kept, targets, reduction)
    # The gradient of all rows is multiplied by the common factor afterwards, in the backward pass.
    grad = torch.ones_like(loss)
    d = cross_entropy_backward_reference(grad, logits, target, class_weight, kept, *options, "mean", token_weight)
    d_bias = wide(input.new_empty(0)) if bias is None else wide(d).sum(0)
    return loss, d @ weight, wide(d.t() @ input), d_bias, factor


FUSED_LINEAR_CROSS_ENTROPY = Operator(
    "fused_linear_cross_entropy",
    reference=_fused_linear_cross_entropy,
    training="fused_linear_cross_entropy_training",
    sharded=ShardedReduction("weight=S(0), bias=S(0) -> R", loss_of_shards),
    autocast=_AUTOCAST,
)
# 0 where no row counts, as in PyTorch, although the mean of none is nan, and so may be what arrives.
_GRADIENT = "aten::where(factor == 0, factor, grad_loss * factor)"
FUSED_LINEAR_CROSS_ENTROPY_TRAINING = Operator(
    "fused_linear_cross_entropy_training",
    reference=_fused_linear_cross_entropy_training,
    derivatives={name: f"scaled_(d_{name}, {_GRADIENT}, {name})" for name in ("input", "weight", "bias")},
    not_differentiable=("d_input", "d_weight", "d_bias", "factor"),
    sharded=ShardedReduction("weight=S(0), bias=S(0) -> R, P(sum), S(0), S(0), R", training_of_shards),
    autocast=_AUTOCAST,
)


def _linear_cross_entropy_rows(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
) -> tuple[Tensor, Tensor]:
    options = (ignore_index, lse_square_scale, label_smoothing, softcap)
    logits = torch.nn.functional.linear(input, weight, bias)
    return cross_entropy_rows_reference(logits, target, class_weight, *options, "none", token_weight)


def _linear_cross_entropy_backward(
    grad_loss: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    kept: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    options = (ignore_index, lse_square_scale, label_smoothing, softcap)
    logits = torch.nn.functional.linear(input, weight, bias)
    d = cross_entropy_backward_reference(grad_loss, logits, target, class_weight, kept, *options, "none", token_weight)
    d_bias = input.new_empty(0) if bias is None else wide(d).sum(0).to(input.dtype)
    return d @ weight, d.t() @ input, d_bias


LINEAR_CROSS_ENTROPY_ROWS = Operator(
    "linear_cross_entropy_rows",
    reference=_linear_cross_entropy_rows,
    derivatives={
        "input, weight, bias": "linear_cross_entropy_backward(grad_loss, input, weight, target, bias, kept, "
        "ignore_index, lse_square_scale, label_smoothing, softcap, class_weight, token_weight)"
    },
    not_differentiable=("kept",),
    sharded=ShardedReduction("weight=S(0), bias=S(0) -> R, R", rows_of_shards),
    autocast=_AUTOCAST,
)
LINEAR_CROSS_ENTROPY_BACKWARD = Operator(
    "linear_cross_entropy_backward",
    reference=_linear_cross_entropy_backward,
    sharded=ShardedReduction("weight=S(0), bias=S(0) -> P(sum), S(0), S(0)", backward_of_shards),
    autocast=None,
)


def _scaled(x: Tensor, factor: Tensor, like: Tensor) -> Tensor:
    check_shape(factor, "factor", ())
    check_shape(like, "like", x.shape)
    if x.dtype not in (like.dtype, wide(like).dtype):
        raise RuntimeError(f"argument 'x' is {x.dtype}, but 'like' is {like.dtype}; convert it with .to(...)")
    if factor.dtype != wide(like).dtype:
        raise RuntimeError(
            f"argument 'factor' is {factor.dtype}, expected {wide(like).dtype}; convert it with .to(...)"
        )
    return (wide(x) * factor).to(like.dtype)


# `grad * factor * d_weight`, rounded once to the weight's dtype, in the place of several operators: a result as large
# as a vocabulary gets huge pages here.
SCALED = Operator(
    "scaled",
    reference=_scaled,
    rule=Rows(x=1, like=1),
    derivatives={"x": "scaled(grad, factor, x)"},
    autocast=None,
)


def _scaled_in_place(x: Tensor, factor: Tensor, like: Tensor) -> None:
    if x.dtype != like.dtype:
        raise RuntimeError(f"argument 'x' is {x.dtype}, but 'like' is {like.dtype}; convert it with .to(...)")
    x.copy_(_scaled(x, factor, like))


SCALED_ = Operator("scaled_", reference=_scaled_in_place, derivatives=None)
