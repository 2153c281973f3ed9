"""Cross entropy of rows of logits."""

from __future__ import annotations

from math import inf

import torch
from opwheel import Operator
from torch import Tensor

from .checks import check_shape
from .precision import wide


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


def cross_entropy_rows_reference(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of each row, the part of it that ``lse_square_scale`` adds, log(sum(exp)), and what it is rounded by."""
    check_shape(target, "target", input.shape[:-1])
    check_numbers(label_smoothing, softcap)
    counted = target != ignore_index
    index = torch.where(counted, target, 0)
    logits = _capped(wide(input), softcap)
    # Logits may be large and close together: of the largest of them and the small rest, only the sum is rounded.
    top = logits.detach().amax(-1)
    log_sum = torch.log(torch.exp(logits - top.unsqueeze(-1)).sum(-1))
    lse = top + log_sum
    below = top.unsqueeze(-1) - logits
    weights = torch.ones_like(logits[0]) if weight is None else wide(weight)
    loss = weights[index] * (1 - label_smoothing) * (below.gather(-1, index.unsqueeze(-1)).squeeze(-1) + log_sum)
    if label_smoothing > 0:
        loss = loss + label_smoothing / input.shape[-1] * (weights * (below + log_sum.unsqueeze(-1))).sum(-1)
    z_loss = lse_square_scale * lse * lse
    results = (loss + z_loss, z_loss, lse, (top - lse) + log_sum)
    loss, z_loss, lse, lse_rest = (torch.where(counted, one, 0) for one in results)
    return loss, z_loss, lse, lse_rest


def cross_entropy_backward_reference(
    grad_loss: Tensor,
    grad_z_loss: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    lse_rest: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
) -> Tensor:
    """The gradient of the logits, from those of the rows' losses and of their z-losses, which are in the losses."""
    check_numbers(label_smoothing, softcap)
    counted = (target != ignore_index).unsqueeze(-1)
    index = torch.where(counted, target.unsqueeze(-1), 0)
    classes = input.shape[-1]
    logits = _capped(wide(input), softcap)
    z = lse.unsqueeze(-1)
    p = torch.exp((logits - z) - lse_rest.unsqueeze(-1))
    weights = torch.ones_like(logits[0]) if weight is None else wide(weight)
    chosen = weights[index] * (1 - label_smoothing)
    smoothing = label_smoothing / classes
    grad_loss, of_z = grad_loss.unsqueeze(-1), (grad_loss + grad_z_loss).unsqueeze(-1) * 2 * lse_square_scale * z
    d = p * (grad_loss * (chosen + smoothing * weights.sum()) + of_z) - grad_loss * smoothing * weights
    d = d - torch.zeros_like(d).scatter(-1, index, grad_loss * chosen)
    if softcap > 0:
        d = d * (1 - (logits / softcap).pow(2))
    return torch.where(counted, d, 0).to(input.dtype)


CROSS_ENTROPY_ROWS = Operator(
    "cross_entropy_rows",
    reference=cross_entropy_rows_reference,
    derivatives={
        "input": "cross_entropy_backward(grad_loss, grad_z_loss, input, target, weight, lse, lse_rest, ignore_index, "
        "lse_square_scale, label_smoothing, softcap)"
    },
    not_differentiable=("lse", "lse_rest"),
)
CROSS_ENTROPY_BACKWARD = Operator("cross_entropy_backward", reference=cross_entropy_backward_reference)
