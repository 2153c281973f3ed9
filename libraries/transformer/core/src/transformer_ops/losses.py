"""The losses as models call them, around the operators."""

from __future__ import annotations

import functools
from math import inf

import torch
from opwheel import functions_of
from torch import Tensor

from .operators.log_sums import REDUCTIONS

_ops = functions_of("transformer_ops")


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
    token_weight: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Cross entropy of logits and class indices, with PyTorch's meaning of the arguments that it has as well.

    The softmax is never in memory: the backward pass computes it again from the logits and two numbers a row, into the
    gradient. The logits are not overwritten.

    Args:
        input: logits, ``(rows, classes)``; float16, bfloat16, float32 or float64.
        target: int64 ``(rows,)``: the right class of each row.
        weight: None, or ``(classes,)`` of the dtype of ``input``, or float32: a factor for each class. If it requires
            a gradient, that is computed by PyTorch's operators, from as many numbers as there are logits.
        ignore_index: rows with this target do not count.
        lse_square_scale: factor of ``logsumexp(input) ** 2``, which is added to the loss of a row (z-loss; Chowdhery
            et al. 2022, https://arxiv.org/abs/2204.02311). Its mean is weighted by ``token_weight`` alone, as
            Liger-Kernel's.
        label_smoothing: share of the target that is spread over all classes (Szegedy et al. 2015,
            https://arxiv.org/abs/1512.00567).
        reduction: ``"mean"`` over the rows that count (weighted by ``weight`` and ``token_weight``), ``"sum"`` or
            ``"none"``.
        softcap: logits become ``softcap * tanh(input / softcap)``.
        return_z_loss: also return what ``lse_square_scale`` has added, without a gradient.
        token_weight: None, or ``(rows,)``: a factor for each row's loss; float32, float64 for float64. Gradients as
            of ``weight``.

    Returns:
        The loss, or ``(loss, z_loss)``: 0-d, or ``(rows,)`` without a reduction; float64 for float64, else float32.

    Raises:
        RuntimeError: a shape or dtype does not fit, a target is no class, or ``label_smoothing`` is not from 0 to 1.
        ValueError: ``reduction`` is none of these, or ``softcap`` is not a positive number.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
    if softcap is None:
        softcap = 0.0
    elif not 0 < softcap < inf:
        raise ValueError(f"softcap is {softcap}, expected None or a positive number")
    loss: Tensor
    kept: Tensor
    loss, kept = _ops.cross_entropy_rows(
        input, target, weight, ignore_index, lse_square_scale, label_smoothing, softcap, reduction, token_weight
    )
    if not return_z_loss:
        return loss
    lse = kept[: len(target)]  # 0 of rows that do not count, whatever their token's weight
    squares = lse * lse if token_weight is None else torch.where(lse == 0, 0, lse * lse * token_weight.detach())
    z_losses = lse_square_scale * squares
    if reduction == "none":
        return loss, z_losses
    return loss, z_losses.sum() / kept[-1] if reduction == "mean" else z_losses.sum()


@functools.wraps(_ops.fused_linear_cross_entropy, assigned=())  # opwheel.operators_of knows it by that
def fused_linear_cross_entropy(
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
    """Cross entropy of ``input @ weight.T + bias``, without all of these logits in memory.

    A few rows of logits are computed at a time. Where a gradient is recorded, those of ``input``, ``weight`` and
    ``bias`` are computed with them, and only scaled in the backward pass; without a reduction the backward pass
    computes the logits again, because each row's gradient is known only there.

    Args:
        input: ``(rows, width)``; float16, bfloat16, float32 or float64.
        weight: ``(classes, width)``, of the same dtype.
        target: int64 ``(rows,)``: the right class of each row.
        bias: None, or ``(classes,)``.
        ignore_index: rows with this target do not count.
        lse_square_scale: factor of ``logsumexp(logits) ** 2``, which is added to the loss of a row. Its mean is
            weighted by ``token_weight`` alone.
        label_smoothing: share of the target that is spread over all classes.
        reduction: ``"mean"`` over the rows that count, weighted by ``class_weight`` and ``token_weight``, ``"sum"`` or
            ``"none"``.
        softcap: logits become ``softcap * tanh(logits / softcap)``; 0 for none.
        class_weight: None, or ``(classes,)``: a factor for each class, as ``weight`` of
            :func:`torch.nn.functional.cross_entropy`; of the dtype of ``input``, or float32. If it requires a
            gradient, that is computed by PyTorch's operators, from all logits.
        token_weight: None, or ``(rows,)``: a factor for each row's loss; float32, float64 for float64. Gradients as
            of ``class_weight``.

    Returns:
        The loss, 0-d, or ``(rows,)`` without a reduction: float64 for float64, else float32.

    Raises:
        RuntimeError: a shape or dtype does not fit, a target is no class, ``reduction`` is none of these, or
            ``label_smoothing`` or ``softcap`` has no meaning.
    """
    options = ignore_index, lse_square_scale, label_smoothing
    if reduction != "none":
        loss = _ops.fused_linear_cross_entropy(
            input, weight, target, bias, *options, reduction, softcap, class_weight, token_weight
        )
    else:
        loss, _ = _ops.linear_cross_entropy_rows(
            input, weight, target, bias, *options, softcap, class_weight, token_weight
        )
    return loss  # type: ignore[no-any-return]
