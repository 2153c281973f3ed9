"""How far results may be off by rounding alone; nobody gives a tolerance.

With the units of ``opwheel judge``, and the operator itself in float64 in the place of a reference.
"""

# ruff: noqa: D103
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...judge.rounding import FACTOR, is_moved, largest_error, moved, unit_of
from .common import comparable, copies, outcome, with_tensors


def step_of(dtype: torch.dtype) -> float:
    """A unit in the last place, as a part of the number; what takes float64 may compute in float32 inside."""
    return torch.finfo(torch.float32 if dtype in (torch.float64, torch.complex128) else dtype).eps


def moved_arguments(value: Any, step: torch.dtype | None, generator: torch.Generator) -> Any:
    """The tensors, each number moved by a unit in its last place, up or down at random; zeros by as good as nothing."""
    return with_tensors(value, lambda x: moved(x, step_of(step or x.dtype), generator) if is_moved(x) else x.clone())


def widened(value: Any) -> Any:
    return with_tensors(value, lambda x: comparable(x) if is_moved(x) else x)


def lowered(value: Any, dtype: torch.dtype | None) -> Any:
    return with_tensors(value, lambda x: x.to(dtype or x.dtype) if x.dtype is torch.float32 else x)


def attempt(op: Any, args: Any, kwargs: Any) -> dict[str, Tensor] | None:
    try:
        return {name: comparable(x) for name, x in outcome(op, args, kwargs).items()}
    except Exception:  # whatever the operator raises in another dtype
        return None


def units(values: list[Tensor], step: float) -> Tensor:
    """What rounding does to a number, from the result and what it is where arguments are moved."""
    return unit_of(values[0], values[1:], step, torch.finfo(torch.float32).tiny)


def repeated(want: dict[str, Tensor]) -> dict[str, Tensor]:
    """How far the numbers of a call may be off that is made again as it is: only sums may be in another order."""
    found = {}
    for name, one in want.items():
        x, is_number = comparable(one), one.is_floating_point() or one.is_complex()
        most = x.abs().nan_to_num(0, 0, 0).max() if is_number and x.numel() else torch.zeros(())
        found[name] = (64 * step_of(one.dtype) * most if is_number else most).expand(one.shape)
    return found


def tolerances(op: Any, args: Any, kwargs: Any, low: torch.dtype | None = None) -> dict[str, Tensor]:
    """How far each number that a call gives may be off: ``FACTOR`` times what the operator makes of rounding.

    That is its error against itself in float64 where it takes float64, in units of rounding, and one unit where that
    is more. A number that jumps where arguments move may be anything.

    Args:
        op: the operator.
        args: positional arguments.
        kwargs: keyword arguments.
        low: a dtype in which float32 tensors are computed.
    """
    generator = torch.Generator().manual_seed(1)
    given = [copies((args, kwargs))] + [moved_arguments((args, kwargs), low, generator) for _ in range(4)]
    own = [attempt(op, *copies(lowered(one, low))) for one in given]
    wide = [attempt(op, *copies(widened(one))) for one in given]
    true = outcome(op, *copies(given[0]))
    found = {}
    for name, result in true.items():
        shape = result.shape
        pairs = [
            [row[name] if row and name in row and row[name].shape == shape else None for row in (a, b)]
            for a, b in zip(own, wide, strict=True)
        ]
        exact = [b if all(pair[1] is not None for pair in pairs) else a for a, b in pairs]
        if any(one is None for one in exact):
            found[name] = torch.full(shape, torch.inf, dtype=torch.float64)
        elif not (result.is_floating_point() or result.is_complex()):
            same = [one == result for pair in pairs for one in pair if one is not None]
            found[name] = torch.where(torch.stack(same).all(0), 0.0, torch.inf)
        else:
            unit = units([one for one in exact if one is not None], step_of(low or result.dtype))
            errors = [largest_error(a, b, unit) for a, b in pairs if a is not None and b is not None]
            found[name] = (FACTOR * max(1.0, *errors) * unit).nan_to_num(torch.inf, torch.inf)
    return found
