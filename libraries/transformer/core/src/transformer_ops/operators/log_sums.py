"""What the loss of a row of logits and its gradient are made of, whether the row is whole or a part of it is here."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from .checks import check_shape
from .precision import wide

REDUCTIONS = ("mean", "sum", "none")


@dataclass(frozen=True)
class Targets:
    """The right classes of rows, and what weights them: all of them on every process.

    Args:
        index: of the class, int64 ``(rows,)``; 0 of rows that do not count.
        counted: whether a row counts.
        classes: how many there are.
        class_weights: ``(classes,)``, in the dtype that is computed in.
        token_weights: ``(rows,)``, in that dtype.
    """

    index: Tensor
    counted: Tensor
    classes: int
    class_weights: Tensor
    token_weights: Tensor

    @property
    def weights(self) -> Tensor:
        """The weight of each row's class."""
        return self.class_weights.gather(0, self.index)  # which refuses what is no class

    @property
    def divisors(self) -> Tensor:
        """What a mean divides the cross entropies by, and the z-losses."""
        tokens = torch.where(self.counted, self.token_weights, 0)
        return torch.stack(((tokens * self.weights).sum(), tokens.sum()))


class LogSums(NamedTuple):
    """What the loss of each row is made of: ``(rows,)``, in the dtype that is computed in.

    Args:
        top: the largest logit.
        log_sum: ``log(sum(exp(logits - top)))``. Logits may be large and close together: of the largest of them and
            the small rest, only the sum is rounded.
        below: by how much the target's logit is smaller than ``top``.
        smooth: the same of all classes, their weighted sum.
    """

    top: Tensor
    log_sum: Tensor
    below: Tensor
    smooth: Tensor


class RowGradients(NamedTuple):
    """What the gradients of a row's logits are made of: ``(rows, 1)``, in the dtype that is computed in.

    Args:
        lse: ``log(sum(exp(logits)))``, as it was kept.
        rest: what that is rounded by.
        of_softmax: the factor of the softmax.
        of_weights: of the classes' weights.
        of_target: what the target's gradient is smaller by.
    """

    lse: Tensor
    rest: Tensor
    of_softmax: Tensor
    of_weights: Tensor
    of_target: Tensor


def targets_of(
    target: Tensor, weight: Tensor | None, token_weight: Tensor | None, ignore_index: int, classes: int, like: Tensor
) -> Targets:
    """The targets of rows, checked.

    Args:
        target: int64 ``(rows,)``.
        weight: None, or ``(classes,)``.
        token_weight: None, or ``(rows,)``, in the dtype that is computed in.
        ignore_index: of rows that do not count.
        classes: how many there are.
        like: in the dtype that is computed in.

    Raises:
        RuntimeError: a shape or dtype does not fit.
    """
    if weight is not None:
        check_shape(weight, "weight", (classes,))
    if token_weight is not None:
        check_shape(token_weight, "token_weight", target.shape)
        if token_weight.dtype != like.dtype:
            raise RuntimeError(
                f"argument 'token_weight' is {token_weight.dtype}, expected {like.dtype}; convert it with .to(...)"
            )
    counted = target != ignore_index
    return Targets(
        torch.where(counted, target, 0),
        counted,
        classes,
        like.new_ones(classes) if weight is None else wide(weight),
        like.new_ones(target.shape) if token_weight is None else token_weight,
    )


def check_options(label_smoothing: float, softcap: float, reduction: str = "none") -> None:
    """Refuse what has no meaning.

    Raises:
        RuntimeError: ``label_smoothing`` is no share, or ``softcap`` negative, infinite or nan.
        ValueError: ``reduction`` is none.
    """
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"argument 'label_smoothing' is {label_smoothing:g}, expected 0 to 1")
    if not 0 <= softcap < inf:
        raise RuntimeError(f"argument 'softcap' is {softcap:g}, expected a positive number, or 0 for none")
    if reduction not in REDUCTIONS:
        raise ValueError(f"argument 'reduction' is {reduction!r}, expected 'mean', 'sum' or 'none'")


def capped(x: Tensor, softcap: float) -> Tensor:
    """Logits between ``-softcap`` and ``softcap``; 0: as they are."""
    return softcap * torch.tanh(x / softcap) if softcap > 0 else x


def losses_of(
    sums: LogSums, targets: Targets, lse_square_scale: float, label_smoothing: float, reduction: str
) -> tuple[Tensor, Tensor]:
    """The loss, and what is kept for its gradient.

    Returns:
        ``(loss, kept)``: 0-d or ``(rows,)``; ``(2 * rows,)``, the logarithm of the sum of ``exp(logit)`` of each row,
        and then what that is rounded by. At its end a mean has two numbers more, what it divides the cross entropies
        by, and the z-losses.
    """
    lse = sums.top + sums.log_sum
    loss = targets.weights * (1 - label_smoothing) * (sums.below + sums.log_sum)
    if label_smoothing > 0:
        of_all = sums.smooth + targets.class_weights.sum() * sums.log_sum
        loss = loss + label_smoothing / targets.classes * of_all
    z_loss = lse_square_scale * lse * lse
    tokens = targets.token_weights
    results = (tokens * loss, tokens * z_loss, lse, (sums.top - lse) + sums.log_sum)
    loss, z_loss, lse, rest = (torch.where(targets.counted, one, 0) for one in results)
    if reduction == "none":
        return loss + z_loss, torch.cat((lse, rest))
    if reduction == "sum":
        return loss.sum() + z_loss.sum(), torch.cat((lse, rest))
    divisors = targets.divisors
    return loss.sum() / divisors[0] + z_loss.sum() / divisors[1], torch.cat((lse, rest, divisors))


def row_gradients(
    grad_loss: Tensor,
    targets: Targets,
    kept: Tensor,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
) -> RowGradients:
    """What the gradients of logits are made of, from that of the loss and from what :func:`losses_of` gave.

    Raises:
        RuntimeError: that was of another number of rows, or of another reduction.
    """
    rows = len(targets.index)
    check_shape(kept, "kept", (2 * rows + 2 * (reduction == "mean"),))
    lse, rest, divisors = kept[:rows], kept[rows : 2 * rows], kept[2 * rows :]
    chosen = targets.weights * (1 - label_smoothing)
    smoothing = label_smoothing / targets.classes
    grad = grad_loss * targets.token_weights
    of_loss, of_z = (grad / divisors[0], grad / divisors[1]) if reduction == "mean" else (grad, grad)
    of_softmax = of_loss * (chosen + smoothing * targets.class_weights.sum()) + of_z * 2 * lse_square_scale * lse
    parts = (lse, rest, of_softmax, of_loss * smoothing, of_loss * chosen)
    return RowGradients(*(one.unsqueeze(-1) for one in parts))


def logits_gradient(
    input: Tensor, rows: RowGradients, class_weights: Tensor, target: Tensor, counted: Tensor, softcap: float
) -> Tensor:
    """The gradient of logits, or of some classes' logits, in the dtype that is computed in.

    Args:
        input: the logits, ``(rows, classes)``.
        rows: what their gradients are made of.
        class_weights: of these classes.
        target: int64 ``(rows,)``: the right one of these classes, or -1 where it is another one.
        counted: ``(rows,)``: whether a row counts.
        softcap: as :func:`capped` has it.
    """
    logits = capped(wide(input), softcap)
    is_here = (target >= 0).unsqueeze(-1)
    d = torch.exp((logits - rows.lse) - rows.rest) * rows.of_softmax - rows.of_weights * class_weights
    index = torch.where(is_here, target.unsqueeze(-1), 0)
    d = d - torch.zeros_like(d).scatter(-1, index, torch.where(is_here, rows.of_target, 0))
    if softcap > 0:
        d = d * (1 - (logits / softcap).pow(2))
    return torch.where(counted.unsqueeze(-1), d, 0)


def of_largest_weight(kept: Tensor, targets: Targets, reduction: str) -> tuple[Tensor, Tensor]:
    """What gradients are computed with before that of the loss is known, and the factor that is then missing.

    They are divided by the largest weight of a row that counts, so that none is too small for 16 bits.

    Args:
        kept: of the rows, without a reduction.
        targets: of them.
        reduction: ``"mean"`` or ``"sum"``.

    Returns:
        What a mean would keep, and the factor, 0-d.
    """
    weights = torch.where(targets.counted, targets.token_weights, 0)
    one = weights.new_ones(())
    largest = torch.cat((weights.abs(), weights.new_zeros(1))).amax()
    largest = torch.where((largest > 0) & largest.isfinite(), largest, one)
    divisors = targets.divisors if reduction == "mean" else torch.stack((one, one))
    factor = torch.where(targets.counted.any(), largest / divisors[0], 0)
    return torch.cat((kept, torch.stack((largest, largest * (divisors[1] / divisors[0]))))), factor
