"""Cross entropy as models call it: reductions, and an optional softcap, around the operator over rows."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Cross entropy of logits and class indices, with PyTorch's meaning of the arguments that it has as well.

    The softmax is never in memory: the backward pass computes it again from the logits and one number a row, into the
    gradient. The logits are not overwritten.

    Args:
        input: logits, ``(rows, classes)``; float16, bfloat16, float32 or float64.
        target: int64 ``(rows,)``: the right class of each row.
        weight: None, or ``(classes,)`` of the dtype of ``input``: a factor for each class.
        ignore_index: rows with this target do not count.
        lse_square_scale: factor of ``logsumexp(input) ** 2``, which is added to the loss of a row (z-loss; Chowdhery
            et al. 2022, https://arxiv.org/abs/2204.02311).
        label_smoothing: share of the target that is spread over all classes (Szegedy et al. 2015,
            https://arxiv.org/abs/1512.00567).
        reduction: ``"mean"`` over the rows that count (weighted by ``weight``), ``"sum"`` or ``"none"``.
        softcap: logits become ``softcap * tanh(input / softcap)``.
        return_z_loss: also return what ``lse_square_scale`` has added, without a gradient.

    Returns:
        The loss, or ``(loss, z_loss)``: 0-d, or ``(rows,)`` without a reduction; float64 for float64, else float32.

    Raises:
        RuntimeError: a shape or dtype does not fit, a target is no class, or ``label_smoothing`` is not from 0 to 1.
        ValueError: ``reduction`` is none of these, or ``softcap`` is not a positive number.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
    if softcap is not None and not 0 < softcap < inf:
        raise ValueError(f"softcap is {softcap}, expected None or a positive number")
    losses, z_losses, *_ = torch.ops.transformer_ops.cross_entropy_rows(
        input, target, weight, ignore_index, lse_square_scale, label_smoothing, softcap or 0.0
    )
    if reduction == "sum":
        losses, z_losses = losses.sum(), z_losses.sum()
    elif reduction == "mean":
        counted = target != ignore_index
        rows = counted.sum()
        if weight is None:
            losses = losses.sum() / rows
        else:
            weights = torch.where(counted, weight[torch.where(counted, target, 0)], 0)
            share = weights.sum(dtype=losses.dtype)
            losses = (losses - z_losses).sum() / share + z_losses.sum() / rows
        z_losses = z_losses.sum() / rows
    return (losses, z_losses.detach()) if return_z_loss else losses
