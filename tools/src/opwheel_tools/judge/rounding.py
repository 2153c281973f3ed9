"""What rounding alone does to results, in judge and audit alike; nobody gives a tolerance.

The unit of an element is half the root mean square of its change when every input moves by a unit in its last place, up
or down at random, and half a unit in the last place of the result. A result may be off by :data:`FACTOR` times what the
reference's own evaluation is off by in these units, or by :data:`FACTOR` units.
"""

from __future__ import annotations

import torch
from torch import Tensor

FACTOR = 8.0
TINY = 1e-12  # a part of numbers: what does not jump hardly changes when inputs move by it
_NOTHING = 1e-30
_JUMP = 0.1  # units


def wide_dtype(x: Tensor) -> torch.dtype:
    """The widest dtype of the same kind of numbers."""
    return torch.float64 if x.is_floating_point() else torch.complex128 if x.is_complex() else x.dtype


def is_moved(x: Tensor) -> bool:
    """Whether numbers have neighbours to be moved to; those of eight bits are far away."""
    return x.layout is torch.strided and (x.is_floating_point() or x.is_complex()) and x.element_size() > 1


def moved(x: Tensor, step: float, generator: torch.Generator, sign: int = 1, *, breaks_ties: bool = False) -> Tensor:
    """An input, each number moved by a part of itself, up or down at random; zeros by as good as nothing.

    Zeros move too, so that a result that jumps there is known not to be compared: the derivative at a kink.

    Args:
        x: the input; integers stay.
        step: the part.
        generator: of the directions.
        sign: -1 for the opposite directions.
        breaks_ties: whether each moves by another part, between half of it and all, so that no two stay the same.
    """
    if not is_moved(x):
        return x.clone()
    signs = sign * (torch.randint(0, 2, x.shape, generator=generator) * 2 - 1).double()
    if breaks_ties:
        signs = signs * (1 + torch.rand(x.shape, generator=generator).double()) / 2
    wide = x.detach().to(wide_dtype(x))
    nothing = max(_NOTHING, torch.finfo(x.dtype).smallest_normal)
    return torch.where(x == 0, signs * nothing, wide * (1 + symmetric_like(wide, signs) * step)).to(x.dtype)


def symmetric_like(x: Tensor, change: Tensor) -> Tensor:
    """The change, symmetric where x is but for rounding: operators on symmetric matrices read one half of them."""
    is_square = x.dim() > 1 and x.shape[-1] == x.shape[-2] > 1
    return (change + change.mT) / 2 if is_square and torch.allclose(x, x.mT) else change


def unit_of(want: Tensor, near: list[Tensor], step: float, least: float) -> Tensor:
    """What the rounding of inputs and result does to each element.

    Where a moved input has left the domain, as a zero may that of a logarithm, the result is nan and is not counted.

    Args:
        want: the result.
        near: what it is where the inputs are moved.
        step: a unit in the last place, as a part of the number.
        least: what is added.
    """
    spread = torch.stack([(one - want).abs().square() for one in near]).nanmean(0).sqrt()
    return (spread + step * want.abs()) / 2 + least


def jumps(want: Tensor, nearest: list[Tensor], unit: Tensor) -> Tensor:
    """Which elements are no continuous function of the inputs, so that they may be anything.

    Args:
        want: the result.
        nearest: what it is where the inputs are moved by :data:`TINY`.
        unit: of each element.
    """
    changes = torch.stack([(one - want).abs() for one in nearest])
    return changes.nan_to_num(0.0, torch.inf).amax(0) > _JUMP * unit


def largest_error(got: Tensor, want: Tensor, unit: Tensor) -> float:
    """The largest distance in units, of elements where all is finite."""
    distance = (got.to(want.dtype) - want).abs() / unit
    known = distance[distance.isfinite()]
    return float(known.max()) if known.numel() else 0.0
