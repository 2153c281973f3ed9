"""Results and gradients in 16-bit dtypes, also of rows where approximations cancel: computed in float32, rounded once.

An approximation that is right to the digits of a 16-bit dtype leaves none of them once something is subtracted: of
``p - 1`` where the class is nearly certain, of ``1 - sigmoid(x)``, of ``p * (g - sum(p * g))``. Such rows are made from
each sample. A kernel may be as far off as the reference is in the sample's dtype, times a factor. An operator that
declares a tolerance for that dtype, as one whose kernels round in between, has that instead, for its samples alone; and
gradients by formulas that keep a result, which is rounded to 16 bits, have the tolerance of other results.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from opwheel.dispatch.overload import Overload
from torch import Tensor
from torch.utils import _pytree as pytree

from ...opinfo import Tolerance
from ...opinfo.lookup import op_info_of
from .agreement import differentiable, has_derivatives, run_kernel, run_reference, widened
from .applicable import shown
from .cases import Samples, with_other_numbers

DTYPES = (torch.float16, torch.bfloat16)
UNITS = 2  # in the last place of a row's largest element: what is kept for the backward pass is rounded as well
FACTOR = 8  # by which a kernel may be farther off than the reference
COMPUTED = 32 * torch.finfo(torch.float32).eps  # of the largest element, from which rounding comes in sums

Change = Callable[[Tensor], Tensor]


def _confident(margin: float) -> Change:
    """Of each row one element, another one in each row, is larger than all others by the margin."""

    def change(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).clone()
        own = torch.arange(len(rows), device=x.device)
        rows[own, (own + 1) % x.shape[-1]] = rows.amax(-1) + margin
        return rows.view(x.shape)

    return change


CHANGES: dict[str, Change] = {
    "as they are": lambda x: x,
    **{f"one element larger by {margin}": _confident(margin) for margin in (8, 16, 20, 30)},
    "saturated": lambda x: x * 32,
    "nearly equal": lambda x: x[..., :1] + x / 64,
}


def values_in_16_bits(overload: Overload, samples: Samples) -> None:
    """Results and gradients are as near to float64's as the reference's, computed in float32 and rounded; so are sums.

    Sums are those over the last dimension: what is wrong by less than the rounding of an element, but always with the
    same sign, is wrong there.
    """
    if overload.is_random or overload.mutates or samples.dtype not in DTYPES:
        return
    tolerance = op_info_of(overload).tolerance.get(samples.dtype)
    only_samples = _is_for_formulas(overload) or tolerance is not None
    for what in list(CHANGES)[: 1 if only_samples else None]:
        given, again, exact = (_changed(samples, CHANGES[what]) for _ in range(3))
        try:
            want = _results_and_gradients(overload, _widened_leaves(exact), run_reference)
            found = _results_and_gradients(overload, again, run_reference)
        except Exception as error:
            samples.left_out.append(f"rows of the arguments {what}: the reference raises {shown(error)}")
            continue
        got = _results_and_gradients(overload, given, run_kernel)
        coarse = UNITS * torch.finfo(samples.dtype).eps if _keeps_a_narrow_result(overload, given) else COMPUTED
        for (name, one), (_, other), (_, right) in zip(got, found, want, strict=True):
            if one is not None and other is not None and right is not None:
                atol = coarse if name.startswith("gradient") else COMPUTED
                _compare(f"{name}, rows of the arguments {what}", one, other, right, atol, tolerance)


def _is_for_formulas(overload: Overload) -> bool:
    """Whether another operator's derivatives call it: its arguments depend on each other, as a result and an input."""
    called = re.compile(rf"\b{re.escape(overload.operator.name)}\(")
    others = (one.operator for one in overload.siblings.values() if one.operator is not overload.operator)
    formulas = [formula for one in others for formula in (one.derivatives or {}).values()]
    return any(isinstance(formula, str) and called.search(formula) for formula in formulas)


def _keeps_a_narrow_result(overload: Overload, values: tuple[Any, ...]) -> bool:
    """Whether the formulas of its gradients name a result, other than one that is in float32 for every dtype."""
    keeping = overload.training or overload
    formulas = (keeping.operator.derivatives or {}).values()
    named = {
        name for one in formulas for name in (re.findall(r"\w+", one) if isinstance(one, str) else _parameters(one))
    }
    narrow = pytree.tree_map_only(Tensor, lambda x: x.detach(), values)
    results = zip(keeping.result_names, run_reference(keeping, narrow), strict=True)
    return any(name in named and isinstance(one, Tensor) and one.dtype in DTYPES for name, one in results)


def _parameters(function: Callable[..., Any]) -> Iterable[str]:
    return inspect.signature(function).parameters


def _compare(
    what: str, got: Tensor, found: Tensor, exact: Tensor, computed: float, tolerance: Tolerance | None
) -> None:
    """Elements, and sums of rows: where they are numbers in float64, and in the dtype of the result."""
    rounded = exact.to(got.dtype)
    if not exact.is_floating_point() or not exact.numel() or not rounded.isfinite().all() or not found.isfinite().all():
        return
    want, eps = rounded.double(), torch.finfo(got.dtype).eps
    rtol, atol = tolerance or (UNITS * eps, computed)
    of_rows = want.abs().amax(-1, keepdim=True) if want.dim() else want.abs()
    beyond_rounding = ((found.double() - exact).abs() - eps / 2 * exact.abs()).clamp_min(0).max()
    allowed = rtol * of_rows + atol * want.abs().max().clamp_min(1) + FACTOR * beyond_rounding
    _check_within(allowed, what, got.double(), want)
    if want.dim():
        sums, of_found, of_want = (x.double().sum(-1, keepdim=True) for x in (got, found, want))
        allowed -= rtol * of_rows  # elements may be off by so much, but not all of them with the same sign
        allowed = allowed + eps * want.abs().sum(-1, keepdim=True) + FACTOR * (of_found - of_want).abs().max()
        _check_within(allowed, f"{what}: the sum of a row", sums, of_want)


def _check_within(allowed: Tensor, what: str, got: Tensor, want: Tensor) -> None:
    wrong = ~((got - want).abs() <= allowed)
    if wrong.any():
        at = tuple(int(i) for i in wrong.nonzero()[0])
        bound = allowed.expand(want.shape)[at]
        raise AssertionError(f"{what}: {got[at]:.6g} at {at}, expected {want[at]:.6g} within {bound:.2g}")


def _changed(samples: Samples, change: Change) -> tuple[Any, ...]:
    """The sample's values, made anew; its tensors of rows of numbers, in the sample's dtype, are changed."""

    def of(value: Tensor) -> Tensor:
        if value.dtype is not samples.dtype or not value.numel() or not value.dim():
            return value
        return change(value.detach()).requires_grad_(value.requires_grad)

    return with_other_numbers(samples.overload, samples.values(requires_grad=True), of)


def _widened_leaves(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values in float64, those that require gradients as leaves of a graph."""
    wide = widened(values)

    def of(value: Any, before: Any) -> Any:
        return value.requires_grad_(before.requires_grad) if isinstance(value, Tensor) else value

    return tuple(pytree.tree_map(of, one, before) for one, before in zip(wide, values, strict=True))


def _results_and_gradients(
    overload: Overload, values: tuple[Any, ...], run: Callable[..., tuple[Any, ...]]
) -> list[tuple[str, Tensor | None]]:
    """By name, each result, and the gradient of each tensor, where the results' are the same random numbers always."""
    inputs = differentiable(overload, values)
    results = run(overload, values)
    named: list[tuple[str, Tensor | None]] = [
        (f"result {i}", result.detach()) for i, result in enumerate(results) if isinstance(result, Tensor)
    ]
    fixed = overload.without_gradient
    followed = [
        result
        for name, result in zip(overload.result_names, results, strict=True)
        if isinstance(result, Tensor) and result.requires_grad and name not in fixed
    ]
    if not inputs or not followed or not has_derivatives(overload):
        return named
    grads = list(_numbers(followed))
    gradients = torch.autograd.grad(followed, inputs, grads, allow_unused=True)
    return named + [(f"gradient {i}", gradient) for i, gradient in enumerate(gradients)]


def _numbers(results: list[Tensor]) -> Iterator[Tensor]:
    """Gradients of results: numbers that every dtype has."""
    generator = torch.Generator().manual_seed(0)
    for result in results:
        numbers = torch.randint(-16, 17, result.shape, generator=generator) / 8
        yield numbers.to(result.device, result.dtype)
