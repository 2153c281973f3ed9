"""Compares what a candidate gave with what is expected."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .expectation import Expected
from .rounding import largest_error

_FLOAT32_IN_FLOAT64 = torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps


class Place(NamedTuple):
    """An element that is wrong.

    Args:
        tensor: which of those that are compared.
        element: which of its elements, counted in rows.
        atol: how far it may be from the reference in float64; 0 where that is not a number.
    """

    tensor: int
    element: int = 0
    atol: float = 0.0


class Compared(NamedTuple):
    """How a candidate's tensors compare.

    Args:
        problem: what is wrong, in words; empty where nothing is.
        error: the largest, in units.
        own_error: that of the reference in the same dtype.
        is_narrow: whether float64 is right but for float32 inside.
        is_dtype: whether the problem is the dtype of a result.
        place: where it is.
    """

    problem: str = ""
    error: float = 0.0
    own_error: float = 0.0
    is_narrow: bool = False
    is_dtype: bool = False
    place: Place = Place(0)


def compare(got: list[Tensor | None], expected: list[Expected], what: str, *, any_dtype: bool = False) -> Compared:
    """Compare tensors one by one; the first that is wrong is what is said.

    Args:
        got: the candidate's.
        expected: what the reference says.
        what: the tensors are: ``"result"``, or ``"gradient of input"``.
        any_dtype: whether the dtype does not matter.
    """
    if len(got) != len(expected):
        return Compared(f"{len(got)} tensors, expected {len(expected)}")
    worst = Compared()
    for i, (one, other) in enumerate(zip(got, expected, strict=True)):
        found = _compare(one, other, f"{what} {i}" if len(got) > 1 else what, any_dtype)
        if found.problem:
            return found._replace(place=found.place._replace(tensor=i))
        worst = Compared(
            "",
            max(worst.error, found.error),
            max(worst.own_error, found.own_error),
            worst.is_narrow or found.is_narrow,
        )
    return worst


def _compare(got: Tensor | None, expected: Expected, what: str, any_dtype: bool) -> Compared:
    want = expected["want"]
    if want is None:
        return Compared()
    if got is None:
        is_zero = not bool(want.any())
        return Compared("" if is_zero else f"{what}: None, the reference has one")
    got = got.detach()
    if got.layout is not torch.strided or got.is_quantized:
        return Compared(f"{what}: a {got.layout} tensor, which cannot be compared")
    if got.shape != want.shape:
        return Compared(f"{what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}")
    own_dtype = expected["dtype"]
    if not any_dtype and str(got.dtype).removeprefix("torch.") != own_dtype:
        return Compared(f"{what}: {got.dtype}, expected torch.{own_dtype}", is_dtype=True)
    if not (want.is_floating_point() or want.is_complex()):
        wrong = (got != want) & ~expected["unit"]
        return Compared(_words(what, got, want, wrong, "") if wrong.any() else "")
    return _compare_numbers(got, expected, what)


def _compare_numbers(got: Tensor, expected: Expected, what: str) -> Compared:
    want, unit, own, allowed = (expected[key] for key in ("want", "unit", "own", "allowed"))
    own = own if own.shape == want.shape else want
    rounded = want.to(got.dtype) if got.is_floating_point() or not want.is_complex() else want
    is_anything = ~unit.isfinite() & want.isfinite() & ~expected["jumps"]  # where it jumps, it is not nan
    near = ((got.to(want.dtype) - want).abs() <= allowed * unit) | is_anything
    same = [(got == one) | (got.isnan() & one.isnan()) for one in (own.to(got.dtype), rounded)]
    wrong = ~(near | same[0] | same[1])
    wrong &= ~(want.isfinite() & ~own.isfinite())  # PyTorch itself overflows here
    if not expected["has_nan"]:  # nan of infinities, or of 0 / 0: whatever the order of operations gives
        wrong &= ~(want.isnan() | own.isnan())
    else:  # a reference may make nothing of nan, as scaled_dot_product_attention does
        wrong &= ~(got.isnan() & (want == 0))
    own_error = expected["own_error"]
    if not wrong.any():
        return Compared("", largest_error(got, want, unit.where(near, torch.inf)), own_error)
    if got.dtype is torch.float64 and not (wrong & ((got - want).abs() > allowed * _FLOAT32_IN_FLOAT64 * unit)).any():
        return Compared("", 0.0, own_error, is_narrow=True)
    error = largest_error(got, want, unit)
    words = _words(what, got, want, wrong, _how_far(error, own_error))
    return Compared(words, error, own_error, place=_place(got, want, allowed * unit, wrong))


def _place(got: Tensor, want: Tensor, bound: Tensor, wrong: Tensor) -> Place:
    """The element that is furthest from where it may be."""
    far = ((got.to(want.dtype) - want).abs() / bound).where(wrong, -1.0).nan_to_num(0.0, torch.inf).flatten()
    element = int(far.argmax())
    atol = float(bound.flatten()[element])
    return Place(0, element, atol if bool(want.flatten()[element].isfinite()) else 0.0)


def _how_far(error: float, own_error: float) -> str:
    return f"; off by {error:.3g} units of rounding, PyTorch's evaluation of the reference by {own_error:.2g}"


def _words(what: str, got: Tensor, want: Tensor, wrong: Tensor, how_far: str) -> str:
    first: Any = tuple(int(i) for i in wrong.nonzero()[0])
    all_zero = bool(wrong.any()) and not bool(got[wrong].any())
    are = "are zero" if all_zero else "are wrong"
    at = f" at {list(first)}" if first else ""
    return (
        f"{what}: {int(wrong.sum())} of {wrong.numel()} values {are}; the first{at} is {got[first].item():.6g}, "
        f"expected {want[first].item():.6g}{how_far}"
    )
