"""What a result must be: a float64 reference, and how far a correctly rounded kernel may be from it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import torch
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.tensor_iterator import compute_dtype, prepare, result_dtype
from torch import Tensor

# A few operations in the compute dtype; each of them and each constant rounds once.
_ROUNDINGS = 4


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    """One result or several."""
    return result if isinstance(result, tuple) else (result,)


def check(overload: Overload, args: tuple[Any, ...], actual: Any) -> None:
    """Compare results with the reference in float64.

    The bound is half a unit in the last place of the result, plus what rounding errors in the compute dtype make of
    the arguments and intermediate results: more than that means that one was rounded to float16 or bfloat16, that a
    value was truncated, or that it is simply wrong.

    Raises:
        AssertionError: naming operator, position, the values and the bound.
    """
    tensors = overload.tensors(args)
    dtype = result_dtype(tensors)
    expected = as_tuple(overload.operator.reference(*_wide(args)))
    magnitudes = _sensitivities(overload, args)
    for result, reference, magnitude in zip(as_tuple(actual), expected, magnitudes, strict=True):
        assert result.dtype is dtype, f"{overload.name}: result is {result.dtype}, expected {dtype}"
        assert result.shape == reference.shape, f"{overload.name}: shape {result.shape}, expected {reference.shape}"
        _check_values(overload, result, reference, magnitude, dtype)


def _sensitivities(overload: Overload, args: tuple[Any, ...]) -> list[Tensor]:
    """How far each result moves, to first order, when every argument and the result move by one part of themselves.

    The sum of ``|x * df/dx|`` over the arguments x, and ``|f|``: for ``a * b + c`` that is twice ``|a * b|``, ``|c|``
    and the result, however much of it cancels out.
    """
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in overload.tensors(args)))
    leaves = [
        (value.clone() if isinstance(value, Tensor) else torch.full(shape, value, dtype=torch.float64)).requires_grad_()
        for value in _wide(args)
    ]
    sensitivities = []
    with torch.enable_grad():
        for result in as_tuple(overload.operator.reference(*leaves)):
            slopes = torch.autograd.grad(result.sum(), leaves, retain_graph=True, allow_unused=True)
            moved = [(leaf * slope).abs() for leaf, slope in zip(leaves, slopes, strict=True) if slope is not None]
            sensitivities.append(sum(moved, result.abs()).detach())
    return sensitivities


def check_exact(overload: Overload, args: tuple[Any, ...], actual: Any) -> None:
    """Compare special values: nan where the reference has nan, the same infinities and signs of zero.

    A product may be rounded before the sum or not at all, as hardware with a fused multiply-add does: both are right.
    Where the product alone overflows or vanishes, they differ by more than rounding.
    """
    dtype = result_dtype(overload.tensors(args))
    host = [v.detach().cpu() if isinstance(v, Tensor) else v for v in args]
    separate = as_tuple(overload.operator.reference(*prepare(host, compute_dtype(dtype))))
    fused = _fused(overload, host, separate)
    # One unit in the last place, also of subnormals: flushing them to zero is an error.
    info = torch.finfo(dtype)
    spacing = info.smallest_normal * info.eps
    for result, *references in zip(as_tuple(actual), separate, fused, strict=True):
        got = result.detach().cpu()
        wants = [reference.to(dtype) for reference in references]
        right = [
            torch.isclose(got, want, rtol=info.eps, atol=spacing, equal_nan=True)
            & ((got != 0) | (want != 0) | (got.signbit() == want.signbit()))
            for want in wants
        ]
        for wrong in (~torch.stack(right).any(0)).nonzero():
            raise AssertionError(
                f"{overload.name} in {dtype}: {got[tuple(wrong)].item()!r} for "
                f"{[v[tuple(wrong)].item() if isinstance(v, Tensor) else v for v in host]}, expected "
                f"{' or '.join(repr(want[tuple(wrong)].item()) for want in wants)}"
            )


def _fused(overload: Overload, args: list[Any], separate: tuple[Tensor, ...]) -> list[Tensor]:
    """The exact results, rounded to float64 once; where those are zero, with the signs of the separate ones."""
    results = [value.double().clone() for value in separate]
    rows = zip(*(v.double().tolist() if isinstance(v, Tensor) else itertools.repeat(v) for v in args), strict=False)
    for position, row in enumerate(rows):
        is_finite = all(map(math.isfinite, row))
        exact: Any = overload.operator.reference(*map(Fraction if is_finite else _harmless, row))
        for result, value in zip(results, as_tuple(exact), strict=True):
            if is_finite and value != 0:
                result[position] = _rounded(value)
            elif not math.isfinite(value):
                result[position] = value
    return results


def _harmless(value: float) -> float:
    """Next to an infinity or nan only the sign of a number counts; its size must not make another infinity."""
    return math.copysign(1.0, value) if value != 0 and math.isfinite(value) else value


def _rounded(exact: Any) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


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
