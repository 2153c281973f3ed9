"""The losses of a linear layer's results where every process has the weight's rows of some classes."""

from __future__ import annotations

import torch
from opwheel import LocalShard
from torch import Tensor

from .checks import check_shape
from .log_sums import RowGradients, Targets, check_options, of_largest_weight, row_gradients, targets_of
from .precision import wide
from .vocabulary_shards import exchanged_losses, gradient_here, steps_of


def rows_of_shards(
    shard: LocalShard,
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
    """``linear_cross_entropy_rows`` with ``weight`` and ``bias`` of this process's classes; all else is whole."""
    targets = _targets(shard, input, target, class_weight, token_weight, ignore_index)
    return _losses(shard, input, weight, bias, targets, lse_square_scale, label_smoothing, softcap, "none")


def loss_of_shards(
    shard: LocalShard,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
    softcap: float,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
) -> Tensor:
    """``fused_linear_cross_entropy``."""
    targets = _targets(shard, input, target, class_weight, token_weight, ignore_index)
    return _losses(shard, input, weight, bias, targets, lse_square_scale, label_smoothing, softcap, reduction)[0]


def training_of_shards(
    shard: LocalShard,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
    softcap: float,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """``fused_linear_cross_entropy_training``; what it gives of ``d_input`` is added up over the processes."""
    targets = _targets(shard, input, target, class_weight, token_weight, ignore_index)
    options = (lse_square_scale, label_smoothing)
    loss, kept = _losses(shard, input, weight, bias, targets, *options, softcap, reduction)
    kept, factor = of_largest_weight(kept[: 2 * len(target)], targets, reduction)
    of_rows = row_gradients(torch.ones_like(loss), targets, kept, *options, "mean")
    d_input, d_weight, d_bias = _gradients(shard, input, weight, bias, targets, of_rows, softcap)
    return loss, d_input, d_weight, d_bias if bias is not None else wide(input.new_empty(0)), factor


def backward_of_shards(
    shard: LocalShard,
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
    """``linear_cross_entropy_backward``; nothing is exchanged, and what it gives for ``input`` is to be added up."""
    check_options(label_smoothing, softcap)
    targets = _targets(shard, input, target, class_weight, token_weight, ignore_index)
    of_rows = row_gradients(grad_loss, targets, kept, lse_square_scale, label_smoothing, "none")
    d_input, d_weight, d_bias = _gradients(shard, input, weight, bias, targets, of_rows, softcap)
    d_bias = input.new_empty(0) if bias is None else d_bias.to(input.dtype)
    return d_input, d_weight.to(input.dtype), d_bias


def _targets(
    shard: LocalShard,
    input: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
    ignore_index: int,
) -> Targets:
    check_shape(target, "target", input.shape[:-1])
    return targets_of(target, class_weight, token_weight, ignore_index, shard.size, wide(input.new_empty(0)))


def _losses(
    shard: LocalShard,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Targets,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str,
) -> tuple[Tensor, Tensor]:
    def logits_of(rows: slice) -> Tensor:
        return torch.nn.functional.linear(input[rows], weight, bias)

    options = (lse_square_scale, label_smoothing, softcap, reduction)
    return exchanged_losses(shard, logits_of, len(weight), targets, *options)


def _gradients(
    shard: LocalShard,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Targets,
    of_rows: RowGradients,
    softcap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``input``, and of ``weight`` and ``bias`` in the dtype in which they are added up."""
    computed = wide(input.new_empty(0))
    d_input = torch.empty_like(input)
    d_weight, d_bias = computed.new_zeros(weight.shape), computed.new_zeros(len(weight))
    for rows in steps_of(len(input), len(weight)):
        logits = torch.nn.functional.linear(input[rows], weight, bias)
        d = gradient_here(shard, logits, rows, targets, of_rows, softcap)
        d_bias += d.sum(0)
        d = d.to(input.dtype)
        d_input[rows] = d @ weight
        d_weight += d.t() @ input[rows]
    return d_input, d_weight, d_bias
