"""What a result must be: a float64 reference, and how far a correctly rounded kernel may be from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from muladd.dispatch.elementwise import compute_dtype, prepare, result_dtype
from muladd.dispatch.overload import Overload

# The reference is a polynomial of a few terms in the compute dtype; each operation and each constant rounds once.
_ROUNDINGS = 4


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    """One result or several."""
    return result if isinstance(result, tuple) else (result,)


def check(overload: Overload, args: tuple[Any, ...], actual: Any) -> None:
    """Compare results with the reference in float64.

    The bound is half a unit in the last place of the result, plus the rounding errors of the compute dtype relative to
    the sum of the absolute values of the terms: more than that means that an intermediate result was rounded to
    float16 or bfloat16, that a value was truncated, or that it is simply wrong.

    Raises:
        AssertionError: naming operator, position, the values and the bound.
    """
    tensors = overload.tensors(args)
    dtype = result_dtype(tensors)
    expected = as_tuple(overload.operator.reference(*_wide(args)))
    terms = as_tuple(overload.operator.reference(*(abs(value) for value in _wide(args))))
    for result, reference, magnitude in zip(as_tuple(actual), expected, terms, strict=True):
        assert result.dtype is dtype, f"{overload.name}: result is {result.dtype}, expected {dtype}"
        assert result.shape == reference.shape, f"{overload.name}: shape {result.shape}, expected {reference.shape}"
        _check_values(overload, result, reference, magnitude, dtype)


def check_exact(overload: Overload, args: tuple[Any, ...], actual: Any) -> None:
    """Compare special values: nan where the reference has nan, the same infinities and signs of zero."""
    dtype = result_dtype(overload.tensors(args))
    wide = prepare([v.detach().cpu() if isinstance(v, Tensor) else v for v in args], compute_dtype(dtype))
    for result, reference in zip(as_tuple(actual), as_tuple(overload.operator.reference(*wide)), strict=True):
        got, want = result.detach().cpu(), reference.to(dtype)
        # One unit in the last place, also of subnormals: flushing them to zero is an error.
        info = torch.finfo(dtype)
        spacing = info.smallest_normal * info.eps
        torch.testing.assert_close(got, want, rtol=info.eps, atol=spacing, equal_nan=True)
        zeros = (want == 0) & (got == 0)
        assert torch.equal(got[zeros].signbit(), want[zeros].signbit()), f"{overload.name}: sign of a zero is wrong"


def _wide(args: tuple[Any, ...]) -> list[Any]:
    return prepare([v.detach().cpu() if isinstance(v, Tensor) else v for v in args], torch.float64)


def _check_values(overload: Overload, result: Tensor, reference: Tensor, terms: Tensor, dtype: torch.dtype) -> None:
    unit = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    rounding = _ROUNDINGS * torch.finfo(compute_dtype(dtype)).eps
    bound = unit * reference.abs() * (1 + 1e-6) + rounding * terms + smallest
    error = (result.detach().cpu().double() - reference).abs()
    wrong = ~(error <= bound)
    if wrong.any():
        first = tuple(int(i) for i in wrong.nonzero()[0])
        raise AssertionError(
            f"{overload.name} in {dtype}: {int(wrong.sum())} of {wrong.numel()} values are wrong; the first is at "
            f"{first}: {result[first].item()!r}, expected {reference[first].item()!r} within {bound[first].item():.3g}"
        )
