"""The losses where every process has the logits of some classes, or the rows of the weight that gives these.

Of each row the largest logit is exchanged, and then three or four sums over the classes: never the logits. These are
looked at, and computed from the weight, a few rows at a time, so that nothing else is as large as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

import torch
from opwheel import LocalShard
from torch import Tensor

from .checks import check_shape
from .log_sums import (
    LogSums,
    RowGradients,
    Targets,
    capped,
    check_options,
    logits_gradient,
    losses_of,
    row_gradients,
    targets_of,
)
from .precision import wide

_STEPS = 64
_FEWEST = 1 << 16
"""Logits that are worth a step: a quarter of a megabyte of float32."""

LogitsOf = Callable[[slice], Tensor]
"""The logits of some rows, and of this process's classes."""


def losses_of_shards(
    shard: LocalShard,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str,
    token_weight: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """``cross_entropy_rows`` of logits ``(rows, classes of this process)``; all else is whole."""
    check_shape(target, "target", input.shape[:-1])
    targets = targets_of(target, weight, token_weight, ignore_index, shard.size, wide(input.new_empty(0)))
    options = (lse_square_scale, label_smoothing, softcap, reduction)
    return exchanged_losses(shard, lambda rows: input[rows], input.shape[-1], targets, *options)


def gradient_of_shards(
    shard: LocalShard,
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
    """``cross_entropy_backward`` of logits ``(rows, classes of this process)``; nothing is exchanged."""
    check_options(label_smoothing, softcap)
    targets = targets_of(target, weight, token_weight, ignore_index, shard.size, wide(input.new_empty(0)))
    of_rows = row_gradients(grad_loss, targets, kept, lse_square_scale, label_smoothing, reduction)
    gradient = torch.empty_like(input)
    for rows in steps_of(len(input), input.shape[-1]):
        gradient[rows] = gradient_here(shard, input[rows], rows, targets, of_rows, softcap)
    return gradient


def exchanged_losses(
    shard: LocalShard,
    logits_of: LogitsOf,
    classes: int,
    targets: Targets,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str,
) -> tuple[Tensor, Tensor]:
    """The loss of rows and what is kept for its gradient, the same on every process: :func:`.log_sums.losses_of`.

    Args:
        shard: this process's part of the classes.
        logits_of: gives the logits of some rows and of these classes.
        classes: how many they are.
        targets: of all rows.
        lse_square_scale: as the operators have it.
        label_smoothing: as the operators have it.
        softcap: as the operators have it.
        reduction: as the operators have it.
    """
    check_options(label_smoothing, softcap, reduction)
    weights = targets.class_weights[shard.offset : shard.offset + classes] if label_smoothing > 0 else None
    here = _classes_here(shard, targets, classes)
    steps = [
        _looked_at(capped(wide(logits_of(rows)), softcap), here[rows], weights)
        for rows in steps_of(len(targets.index), classes)
    ]
    top, count, others, below, *smooth = torch.cat(steps, -1) if steps else targets.class_weights.new_empty(5, 0)
    largest = shard.all_reduce(top, "max")
    moved = largest - torch.where(top == -inf, 0, top)
    is_largest = top == largest
    others = torch.where(is_largest, others, (count + others) * torch.exp(top - largest))
    sums = [torch.where(is_largest, count, 0), others, torch.where(here >= 0, below + moved, 0)]
    if weights is not None:
        sums.append(smooth[0] + weights.sum() * moved)
    count, others, below, *smooth = shard.all_reduce(torch.stack(sums))
    log_sum = torch.log1p(others + (count - 1))
    found = LogSums(largest, log_sum, below, smooth[0] if smooth else log_sum)
    return losses_of(found, targets, lse_square_scale, label_smoothing, reduction)


def _looked_at(logits: Tensor, here: Tensor, weights: Tensor | None) -> Tensor:
    """Of each row the largest of some classes' logits, and how far these are below it: see :class:`LogSums`.

    Those that are the largest are counted, and the others' exponentials summed: next to 1 a small sum would be lost,
    and it is the loss of a row that is nearly certain. Where all of them are -inf, or there are none, how far they are
    below 0.
    """
    if not logits.shape[-1]:
        none = logits.new_zeros(len(logits))
        return torch.stack((none - inf, *[none] * (3 if weights is None else 4)))
    top = logits.amax(-1)
    below = torch.where(top == -inf, 0, top).unsqueeze(-1) - logits
    is_top = below == 0
    of_target = below.gather(-1, here.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    found = [top, is_top.sum(-1, dtype=top.dtype), torch.exp(-below).masked_fill(is_top, 0).sum(-1), of_target]
    if weights is not None:
        found.append((weights * below).sum(-1))
    return torch.stack(found)


def gradient_here(
    shard: LocalShard, logits: Tensor, rows: slice, targets: Targets, of_rows: RowGradients, softcap: float
) -> Tensor:
    """The gradient of some rows' logits of this process's classes, in the dtype that is computed in."""
    classes = logits.shape[-1]
    if not classes:
        return wide(logits)
    weights = targets.class_weights[shard.offset : shard.offset + classes]
    here = _classes_here(shard, targets, classes)[rows]
    mine = RowGradients(*(one[rows] for one in of_rows))
    return logits_gradient(logits, mine, weights, here, targets.counted[rows], softcap)


def _classes_here(shard: LocalShard, targets: Targets, classes: int) -> Tensor:
    """The right class of each row among those of this process, or -1."""
    index = targets.index - shard.offset
    return torch.where((index >= 0) & (index < classes), index, -1)


def steps_of(rows: int, classes: int) -> Iterator[slice]:
    """The rows that are looked at together: in 64 steps, or less where there are few logits."""
    step = max(-(-rows // _STEPS), _FEWEST // max(classes, 1), 1)
    return (slice(begin, begin + step) for begin in range(0, rows, step))
