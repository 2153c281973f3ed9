"""Cross entropy of a linear layer's results, which are never in memory all at once."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor

from .checks import check_shape
from .cross_entropy import cross_entropy_backward_reference, cross_entropy_rows_reference
from .precision import wide


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
) -> Tensor:
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}, expected 'mean' or 'sum'")
    logits = torch.nn.functional.linear(input, weight, bias)
    rows = cross_entropy_rows_reference(logits, target, None, ignore_index, lse_square_scale, label_smoothing, softcap)
    return rows[0].sum() / ((target != ignore_index).sum() if reduction == "mean" else 1)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    options = (ignore_index, lse_square_scale, label_smoothing)
    loss = _fused_linear_cross_entropy(input, weight, target, bias, *options, reduction, softcap)
    logits = torch.nn.functional.linear(input, weight, bias)
    _, _, lse, rest = cross_entropy_rows_reference(logits, target, None, *options, softcap)
    grad, grad_z = torch.ones_like(lse), torch.zeros_like(lse)
    d = cross_entropy_backward_reference(grad, grad_z, logits, target, None, lse, rest, *options, softcap)
    d_bias = wide(input.new_empty(0)) if bias is None else wide(d).sum(0)
    counted = (target != ignore_index).sum().to(loss.dtype)
    factor = torch.where(counted > 0, 1 / counted, 0) if reduction == "mean" else torch.ones_like(loss)
    return loss, d @ weight, wide(d.t() @ input), d_bias, factor


FUSED_LINEAR_CROSS_ENTROPY = Operator(
    "fused_linear_cross_entropy",
    reference=_fused_linear_cross_entropy,
    training="fused_linear_cross_entropy_training",
    doc="""Cross entropy of ``input @ weight.T + bias``, without all of these logits in memory.

    A few rows of logits are computed at a time. Where a gradient is recorded, those of ``input``, ``weight`` and
    ``bias`` are computed with them, and only scaled in the backward pass.

    Args:
        input: ``(rows, width)``; float16, bfloat16, float32 or float64.
        weight: ``(classes, width)``, of the same dtype.
        target: int64 ``(rows,)``: the right class of each row.
        bias: None, or ``(classes,)``.
        ignore_index: rows with this target do not count.
        lse_square_scale: factor of ``logsumexp(logits) ** 2``, which is added to the loss of a row.
        label_smoothing: share of the target that is spread over all classes.
        reduction: ``"mean"`` over the rows that count, or ``"sum"``.
        softcap: logits become ``softcap * tanh(logits / softcap)``; 0 for none.

    Returns:
        The loss, a 0-d tensor: float64 for float64, else float32.

    Raises:
        RuntimeError: a shape or dtype does not fit, a target is no class, or ``reduction`` is neither.
    """,
)
FUSED_LINEAR_CROSS_ENTROPY_TRAINING = Operator(
    "fused_linear_cross_entropy_training",
    reference=_fused_linear_cross_entropy_training,
    derivatives={
        "input": "scaled(d_input, grad_loss * factor, input)",
        "weight": "scaled(d_weight, grad_loss * factor, weight)",
        "bias": "scaled(d_bias, grad_loss * factor, bias)",
    },
    not_differentiable=("d_input", "d_weight", "d_bias", "factor"),
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
)
