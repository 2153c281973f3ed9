"""Cross entropy of rows of logits."""

from __future__ import annotations

from math import inf

import torch
from opwheel import Operator
from torch import Tensor

from .checks import check_shape
from .invariance import RECORDED, along
from .precision import wide

REDUCTIONS = ("mean", "sum", "none")


def _capped(x: Tensor, softcap: float) -> Tensor:
    return softcap * torch.tanh(x / softcap) if softcap > 0 else x


def check_numbers(label_smoothing: float, softcap: float) -> None:
    """Refuse what has no meaning.

    Raises:
        RuntimeError: ``label_smoothing`` is no share, or ``softcap`` negative, infinite or nan.
    """
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"argument 'label_smoothing' is {label_smoothing:g}, expected 0 to 1")
    if not 0 <= softcap < inf:
        raise RuntimeError(f"argument 'softcap' is {softcap:g}, expected a positive number, or 0 for none")


def _class_weights(weight: Tensor | None, logits: Tensor) -> Tensor:
    """The weight of each class, in the dtype of the wide logits."""
    if weight is None:
        return logits.new_ones(logits.shape[-1])
    check_shape(weight, "weight", logits.shape[-1:])
    return wide(weight)


def _token_weights(token_weight: Tensor | None, logits: Tensor) -> Tensor:
    """The weight of each row, in the dtype of the wide logits."""
    if token_weight is None:
        return logits.new_ones(logits.shape[0])
    check_shape(token_weight, "token_weight", logits.shape[:-1])
    if token_weight.dtype != logits.dtype:
        raise RuntimeError(
            f"argument 'token_weight' is {token_weight.dtype}, expected {logits.dtype}; convert it with .to(...)"
        )
    return token_weight


def divisors_of(
    target: Tensor, weight: Tensor | None, token_weight: Tensor | None, ignore_index: int, like: Tensor
) -> Tensor:
    """What a mean over wide logits such as ``like`` divides the cross entropies by, and the z-losses."""
    counted = target != ignore_index
    tokens = torch.where(counted, _token_weights(token_weight, like), 0)
    weights = _class_weights(weight, like)[torch.where(counted, target, 0)]
    return torch.stack(((tokens * weights).sum(), tokens.sum()))


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
    """The loss, and what is kept for its gradient.

    Returns:
        ``(loss, kept)``: 0-d or ``(rows,)``; ``(2 * rows,)``, the logarithm of the sum of ``exp(logit)`` of each row,
        and then what that is rounded by. At its end a mean has two numbers more, what it divides the cross entropies
        by, and the z-losses.
    """
    check_shape(target, "target", input.shape[:-1])
    check_numbers(label_smoothing, softcap)
    if reduction not in REDUCTIONS:
        raise ValueError(f"argument 'reduction' is {reduction!r}, expected 'mean', 'sum' or 'none'")
    counted = target != ignore_index
    index = torch.where(counted, target, 0)
    logits = _capped(wide(input), softcap)
    # Logits may be large and close together: of the largest of them and the small rest, only the sum is rounded.
    top = logits.detach().amax(-1)
    log_sum = torch.log(torch.exp(logits - top.unsqueeze(-1)).sum(-1))
    lse = top + log_sum
    below = top.unsqueeze(-1) - logits
    weights, tokens = _class_weights(weight, logits), _token_weights(token_weight, logits)
    loss = weights[index] * (1 - label_smoothing) * (below.gather(-1, index.unsqueeze(-1)).squeeze(-1) + log_sum)
    if label_smoothing > 0:
        loss = loss + label_smoothing / input.shape[-1] * (weights * (below + log_sum.unsqueeze(-1))).sum(-1)
    z_loss = lse_square_scale * lse * lse
    results = (tokens * loss, tokens * z_loss, lse, (top - lse) + log_sum)
    loss, z_loss, lse, rest = (torch.where(counted, one, 0) for one in results)
    if reduction == "none":
        return loss + z_loss, torch.cat((lse, rest))
    if reduction == "sum":
        return loss.sum() + z_loss.sum(), torch.cat((lse, rest))
    divisors = divisors_of(target, weight, token_weight, ignore_index, logits)
    return loss.sum() / divisors[0] + z_loss.sum() / divisors[1], torch.cat((lse, rest, divisors))


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
    check_numbers(label_smoothing, softcap)
    counted = (target != ignore_index).unsqueeze(-1)
    index = torch.where(counted, target.unsqueeze(-1), 0)
    classes = input.shape[-1]
    logits = _capped(wide(input), softcap)
    rows = len(target)
    z, rest, divisors = kept[:rows].unsqueeze(-1), kept[rows : 2 * rows].unsqueeze(-1), kept[2 * rows :]
    p = torch.exp((logits - z) - rest)
    weights, tokens = _class_weights(weight, logits), _token_weights(token_weight, logits)
    chosen = weights[index] * (1 - label_smoothing)
    smoothing = label_smoothing / classes
    grad = (grad_loss * tokens).unsqueeze(-1)
    of_loss, of_z = (grad / divisors[0], grad / divisors[1]) if reduction == "mean" else (grad, grad)
    d = p * (of_loss * (chosen + smoothing * weights.sum()) + of_z * 2 * lse_square_scale * z)
    d = d - of_loss * smoothing * weights
    d = d - torch.zeros_like(d).scatter(-1, index, of_loss * chosen)
    if softcap > 0:
        d = d * (1 - (logits / softcap).pow(2))
    return torch.where(counted, d, 0).to(input.dtype)


CROSS_ENTROPY_ROWS = Operator(
    "cross_entropy_rows",
    reference=cross_entropy_rows_reference,
    derivatives={
        "input": "cross_entropy_backward(grad_loss, input, target, weight, kept, ignore_index, "
        "lse_square_scale, label_smoothing, softcap, reduction, token_weight)"
    },
    not_differentiable=("kept",),
    invariant=RECORDED | {"batch": along(0, "input", "target", "token_weight", "loss") | {"reduction": "none"}},
    # Logits are read in the dtype that they have and computed with in float32, as PyTorch computes after a cast.
    autocast={"weight": "float32", "token_weight": "float32"},
)
CROSS_ENTROPY_BACKWARD = Operator(
    "cross_entropy_backward", reference=cross_entropy_backward_reference, invariant=RECORDED, autocast=None
)
