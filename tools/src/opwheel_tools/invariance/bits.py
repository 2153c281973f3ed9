"""Compares tensors by their bits."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DifferenceError(AssertionError):
    """Bits differ: the message says of what, where and how many."""

    code = None


def differing(one: Tensor, other: Tensor) -> Tensor:
    """Which elements differ in a bit; 0 and -0 do, two that are no numbers do not."""
    if one.is_complex():
        return differing(torch.view_as_real(one), torch.view_as_real(other)).any(-1)
    differ = _as_integers(one) != _as_integers(other)
    return differ & ~(one.isnan() & other.isnan()) if one.is_floating_point() else differ


def check_same(what: str, got: Mapping[str, Tensor], want: Mapping[str, Tensor]) -> None:
    """Compare named tensors.

    Args:
        what: has been done, for the message.
        got: what was found.
        want: what was expected.

    Raises:
        DifferenceError: naming the first tensor that differs, and the first element of it.
    """
    for name, expected in want.items():
        found = got[name]
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise DifferenceError(
                f"{what}: '{name}' is {found.dtype} of shape {tuple(found.shape)}, "
                f"expected {expected.dtype} of shape {tuple(expected.shape)}"
            )
        wrong = differing(found, expected)
        if count := int(wrong.sum()):
            place = tuple(wrong.nonzero()[0].tolist())
            raise DifferenceError(
                f"{what}: {count} of {wrong.numel()} elements of '{name}' differ in their bits; the first at {place}: "
                f"{found[place].item()!r} instead of {expected[place].item()!r}"
            )


def _as_integers(tensor: Tensor) -> Tensor:
    """The bits, in integers of the same size."""
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])
