"""Cross entropy of rows of logits."""

from __future__ import annotations

import torch
from opwheel import Operator, ShardedReduction
from torch import Tensor

from .checks import check_shape
from .invariance import RECORDED, along
from .log_sums import LogSums, capped, check_options, logits_gradient, losses_of, row_gradients, targets_of
from .precision import wide
from .vocabulary_shards import gradient_of_shards, losses_of_shards


def cross_entropy_rows_reference(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str = "none",
    token_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss, and what is kept for its gradient, as :func:`.log_sums.losses_of` has them."""
    check_shape(target, "target", input.shape[:-1])
    check_options(label_smoothing, softcap, reduction)
    logits = capped(wide(input), softcap)
    targets = targets_of(target, weight, token_weight, ignore_index, logits.shape[-1], logits)
    top = logits.detach().amax(-1)
    log_sum = torch.log(torch.exp(logits - top.unsqueeze(-1)).sum(-1))
    below = top.unsqueeze(-1) - logits
    smooth = (targets.class_weights * below).sum(-1) if label_smoothing > 0 else log_sum
    sums = LogSums(top, log_sum, below.gather(-1, targets.index.unsqueeze(-1)).squeeze(-1), smooth)
    return losses_of(sums, targets, lse_square_scale, label_smoothing, reduction)


def cross_entropy_backward_reference(
    grad_loss: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    kept: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str,
    token_weight: Tensor | None,
) -> Tensor:
    """The gradient of the logits, from that of the loss."""
    check_options(label_smoothing, softcap)
    targets = targets_of(target, weight, token_weight, ignore_index, input.shape[-1], wide(input))
    rows = row_gradients(grad_loss, targets, kept, lse_square_scale, label_smoothing, reduction)
    d = logits_gradient(input, rows, targets.class_weights, targets.index, targets.counted, softcap)
    return d.to(input.dtype)


CROSS_ENTROPY_ROWS = Operator(
    "cross_entropy_rows",
    reference=cross_entropy_rows_reference,
    derivatives={
        "input": "cross_entropy_backward(grad_loss, input, target, weight, kept, ignore_index, "
        "lse_square_scale, label_smoothing, softcap, reduction, token_weight)"
    },
    not_differentiable=("kept",),
    sharded=ShardedReduction("input=S(-1) -> R, R", losses_of_shards),
    invariant=RECORDED | {"batch": along(0, "input", "target", "token_weight", "loss") | {"reduction": "none"}},
    # Logits are read in the dtype that they have and computed with in float32, as PyTorch computes after a cast.
    autocast={"weight": "float32", "token_weight": "float32"},
)
CROSS_ENTROPY_BACKWARD = Operator(
    "cross_entropy_backward",
    reference=cross_entropy_backward_reference,
    sharded=ShardedReduction("input=S(-1) -> S(-1)", gradient_of_shards),
    invariant=RECORDED,
    autocast=None,
)
