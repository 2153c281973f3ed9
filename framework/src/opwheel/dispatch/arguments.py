"""Arguments of the public functions that a schema cannot tell apart."""

from __future__ import annotations

from numbers import Real
from typing import TypeGuard

import torch
from torch import Tensor


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether it is a tensor, or an object that takes part in PyTorch's functions as one."""
    return isinstance(value, Tensor) or (not isinstance(value, Real) and hasattr(value, "__torch_function__"))


def number(value: object, argument: str, expected: str = "a number or a torch.Tensor") -> float:
    """The number that is meant.

    Args:
        value: what was given.
        argument: the function and the name of its argument, for the error.
        expected: what may be given.

    Raises:
        TypeError: it is none.
        OverflowError: it is beyond every float.
    """
    if isinstance(value, (float, torch.SymFloat, torch.SymInt)):
        return value  # type: ignore[return-value]  # as numbers of a graph they are one
    if isinstance(value, (int, Real)):
        try:
            return float(value)
        except OverflowError:
            raise OverflowError(
                f"{argument} is of type {type(value).__name__} and beyond every float (1.8e308); pass float('inf') "
                "where infinity is meant"
            ) from None
    raise TypeError(f"{argument} is a {type(value).__name__}, expected {expected}")
