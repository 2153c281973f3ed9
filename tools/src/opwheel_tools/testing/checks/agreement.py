"""How results are compared, and what an operator is compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from opwheel.dispatch.overload import Overload, as_tuple, tensors_in
from torch import Tensor
from torch.utils import _pytree as pytree

from ...opinfo import Tolerance
from ...opinfo.lookup import op_info_of


def run_kernel(overload: Overload, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of the operator."""
    return as_tuple(overload.call(overload.op, values))


def run_reference(overload: Overload, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of its reference."""
    return as_tuple(overload.rule.decompose(overload, values))


def has_fractions(tensor: Tensor) -> bool:
    """Whether it is of floating point or complex, so that it can have a gradient."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_float8(dtype: torch.dtype) -> bool:
    """Whether it is one of the dtypes of a byte that PyTorch stores and copies, but has no arithmetic for."""
    return dtype.is_floating_point and dtype.itemsize == 1


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """The tensor times a number, in its dtype."""
    return (tensor.float() * factor).to(tensor.dtype) if is_float8(tensor.dtype) else tensor * factor


def _tolerance(overload: Overload, dtype: torch.dtype, coarsest: float) -> Tolerance:
    declared_one = op_info_of(overload).tolerance.get(dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        return declared_one or Tolerance(0.0, 0.0)
    # float16 and bfloat16 are computed in float32 and rounded once; what adds up in float32 may do so in another order.
    units = 2 if dtype in (torch.float16, torch.bfloat16) else 16
    if declared_one is not None:  # for results: a larger one than others have must not make that of derivatives smaller
        return Tolerance(*(max(one, units * coarsest) for one in declared_one))
    if is_float8(dtype):  # rounded once from float32, to one of two neighbours; next to zero they are evenly spaced
        # The smallest number, 1 and what follows it: torch.finfo is wrong about float8_e5m2fnuz.
        one = torch.ones(1).to(dtype).view(torch.uint8)
        smallest, _, following = torch.cat([torch.ones_like(one), one, one + 1]).view(dtype).float().tolist()
        return Tolerance(following - 1, smallest)
    unit = max(units * torch.finfo(dtype).eps, units * coarsest)
    return Tolerance(unit, unit)


def agree(overload: Overload, what: str, got: Sequence[Any], want: Sequence[Any], coarsest: float = 0.0) -> None:
    """Compare results: dtype, shape and values, within a few units in the last place of the dtype.

    Args:
        overload: that has computed them.
        what: is compared, for the message.
        got: what was found.
        want: what was expected.
        coarsest: the relative spacing of the arguments' values, where that is larger than the results'.

    Raises:
        AssertionError: naming the result, what was found and what was expected.
    """
    assert len(got) == len(want), f"{what}: {len(got)} results, expected {len(want)}"
    for i, (one, other) in enumerate(zip(got, want, strict=True)):
        where = f"{what}: result {i}"
        assert (one is None) == (other is None), f"{where} is {one}, expected {other}"
        if one is None:
            continue
        assert one.dtype == other.dtype, f"{where} is {one.dtype}, expected {other.dtype}"
        assert one.shape == other.shape, f"{where} has shape {tuple(one.shape)}, expected {tuple(other.shape)}"
        rtol, atol = _tolerance(overload, other.dtype, coarsest)
        found, expected = one.detach(), other.detach()
        if is_float8(other.dtype):
            found, expected = found.float(), expected.float()
        else:
            # What is small in a tensor may be the difference of what is large.
            atol *= max(1.0, _largest(expected))
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True, msg=_behind(where))


def agree_on_written(overload: Overload, what: str, got: Sequence[Any], want: Sequence[Any]) -> None:
    """Compare what a call has written, in the values of all arguments: tensors, lists of them, or None."""
    for i in overload.written:
        name = f"{what}: '{overload.names[i]}', which is written to"
        agree(overload, name, list(tensors_in([got[i]])), list(tensors_in([want[i]])))


def _largest(tensor: Tensor) -> float:
    """The largest finite magnitude; 0 where there is none, and for what is exact."""
    if not has_fractions(tensor) or tensor.numel() == 0:
        return 0.0
    magnitudes = tensor.detach().abs()
    return float(torch.where(magnitudes.isfinite(), magnitudes, 0).max())


def coarseness_of_derivatives(dtype: torch.dtype) -> float:
    """They add up many terms; what is wrong in a formula is wrong by more than that."""
    eps: float = torch.finfo(dtype).eps
    return float(eps**0.75)


def _behind(where: str) -> Callable[[str], str]:
    return lambda text: f"{where}: {text}"


def widened(values: Any) -> Any:
    """The values, with tensors of floating point in float64, and complex ones in complex128."""

    def of(value: Any) -> Any:
        if not isinstance(value, Tensor) or not has_fractions(value):
            return value
        return value.detach().to(torch.complex128 if value.is_complex() else torch.float64)

    return pytree.tree_map(of, values)


def cloned(values: Any) -> Any:
    """The values, with tensors of their own."""
    return pytree.tree_map(
        lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, Tensor) else v, values
    )


def differentiable(overload: Overload, values: tuple[Any, ...]) -> list[Tensor]:
    """Those tensors among the values that require gradients, without those that are declared to have none."""
    return [t for t in overload.all_tensors(overload.as_constants(values)) if t.requires_grad]


def differentiable_reference(overload: Overload, values: tuple[Any, ...]) -> list[Tensor]:
    """The reference's results, those without a gradient without history."""
    fixed = overload.without_gradient
    results = zip(overload.result_names, run_reference(overload, overload.as_constants(values)), strict=True)
    return [result.detach() if name in fixed else result for name, result in results]


def constant(overload: Overload, values: tuple[Any, ...]) -> list[Tensor]:
    """Those tensors among the values that require gradients, and are declared to have none."""
    return [t for t in tensors_in(values[i] for i in overload.constants) if t.requires_grad]


def has_derivatives(overload: Overload) -> bool:
    """Whether it is to be differentiated at all."""
    return overload.operator.derivatives is not None and not overload.mutates and bool(overload.tensor_positions)


def check_raises(error: type[Exception] | tuple[type[Exception], ...], match: str, call: Callable[[], Any]) -> None:
    """Check that a call raises one of these errors, with a message that matches."""
    expected = " or ".join(one.__name__ for one in (error if isinstance(error, tuple) else (error,)))
    raised: Exception | None = None
    try:
        call()
    except Exception as one:
        raised = one
    assert raised is not None, f"raised nothing, expected {expected}"
    assert isinstance(raised, error), f"raised {type(raised).__name__}: {raised}, expected {expected}"
    assert re.search(match, str(raised)), f"raised {raised!r}, expected a message with {match!r}"


def raises(call: Callable[[], Any]) -> bool:
    """Whether a call raises an exception."""
    try:
        call()
    except Exception:
        return True
    return False


def _scalar(results: Sequence[Tensor | None]) -> Tensor | None:
    """A number that depends on every element of every result, on none of them linearly."""
    recorded = [(i, real_parts(r)) for i, r in enumerate(results) if r is not None and r.requires_grad]
    parts = [(r * torch.cos(r.detach() + i) + 0.1 * r * r).sum() for i, r in recorded]
    return sum(parts[1:], parts[0]) if parts else None


def real_parts(tensor: Tensor) -> Tensor:
    """Complex numbers as their two parts."""
    return torch.stack([tensor.real, tensor.imag], -1) if tensor.is_complex() else tensor


def gradients_of(
    results: Sequence[Tensor], inputs: list[Tensor], order: int, first_by: list[Tensor] | None = None
) -> list[Tensor | None]:
    """First or second derivatives of a fixed weighted sum of the results; the second of the first by some inputs."""
    total = _scalar(results)
    if total is None:
        return [None] * len(inputs)
    first = torch.autograd.grad(total, first_by or inputs, create_graph=order > 1, allow_unused=True)
    if order == 1:
        return list(first)
    again = _scalar(first)
    if again is None:
        return [None] * len(inputs)
    return list(torch.autograd.grad(again, inputs, allow_unused=True))
