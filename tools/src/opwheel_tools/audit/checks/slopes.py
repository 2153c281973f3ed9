"""An operator as a differentiable function in float64, and its slopes by finite differences."""

# ruff: noqa: D103
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .common import NotTried, copies, is_random, tensors_of, written


def wide(op: Any, args: Any, kwargs: Any) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """The operator in float64 as a function of its differentiable tensors, and these."""
    if is_random(op):
        raise NotTried("the operator is random")
    if written(op):
        raise NotTried("the operator writes to its arguments")
    if any(x.is_complex() for x in tensors_of((args, kwargs))):
        raise NotTried("complex numbers")
    leaves, spec = pytree.tree_flatten((copies(args), copies(kwargs)))
    if any(isinstance(x, Tensor) and (x.layout is not torch.strided or x.is_quantized) for x in leaves):
        raise NotTried("sparse or quantized tensors")
    leaves = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in leaves]
    floats = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point()]

    def function(*inputs: Tensor) -> list[Tensor]:
        values = list(leaves)
        for i, one in zip(chosen, inputs, strict=True):
            values[i] = one
        a, k = pytree.tree_unflatten(values, spec)
        return [r for r in tensors_of(op(*a, **k)) if r.is_floating_point()]

    # What has no gradient in reverse mode is not a variable: boxes of a pooling, statistics of a normalization.
    chosen = floats
    inputs = [leaves[i].requires_grad_() for i in floats]
    try:
        results = [r for r in function(*inputs) if r.requires_grad]
    except (RuntimeError, NotImplementedError) as error:
        raise NotTried(f"the operator refuses float64 tensors that require grad: {error}") from error
    if not results:
        raise NotTried("the results do not require grad")
    ones = [torch.ones_like(r) for r in results]
    gradients = torch.autograd.grad(results, inputs, ones, allow_unused=True)
    chosen = [i for i, g in zip(floats, gradients, strict=True) if g is not None]
    differentiable = [r.requires_grad for r in function(*(leaves[i] for i in chosen))]
    variables = [leaves[i].detach() for i in chosen]
    for i in floats:
        leaves[i] = leaves[i].detach()
    if not chosen:
        raise NotTried("there is no gradient")

    def of(*inputs: Tensor) -> list[Tensor]:
        return [r for r, is_one in zip(function(*inputs), differentiable, strict=True) if is_one]

    return of, variables


def random_like(tensors: list[Tensor], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(x.shape, generator=generator, dtype=torch.float64) + 0.25 for x in tensors]


def symmetric_like(x: Tensor, change: Tensor) -> Tensor:
    """The change, symmetric where x is but for rounding: operators on symmetric matrices read one half of them."""
    is_square = x.dim() > 1 and x.shape[-1] == x.shape[-2] > 1
    return (change + change.mT) / 2 if is_square and torch.allclose(x, x.mT) else change


def directions(inputs: list[Tensor]) -> list[Tensor]:
    return [symmetric_like(x, t) for x, t in zip(inputs, random_like(inputs, 7), strict=True)]


def finite_difference(f: Any, inputs: list[Tensor], tangents: list[Tensor], step: float) -> list[Tensor]:
    """The directional derivative; nan where two sizes of the step, or both sides, do not agree: at a kink or a jump."""

    def at(size: float) -> list[Tensor]:
        return [r.detach() for r in f(*(x + size * t for x, t in zip(inputs, tangents, strict=True)))]

    def slope(size: float, *sides: Tensor) -> Tensor:
        return (sides[0] - sides[-1]) / (size * (len(sides) - 1))

    near, small = step / 4, 1e-4
    points = [at(size) for size in (step, near, 0.0, -near, -step)]
    slopes = []
    for far_up, up, here, down, far_down in zip(*points, strict=True):
        central, other = slope(near, up, here, down), slope(step, far_up, here, far_down)
        bend = slope(near, up, here) - slope(near, here, down)
        size = 1 + central.abs()
        smooth = ((central - other).abs() <= 0.1 * small * size) & (bend.abs() <= small * size)
        slopes.append(torch.where(smooth, central, torch.nan))
    return slopes


def same_slopes(got: list[Tensor], want: list[Tensor], what: str) -> None:
    if not any(x.isfinite().any() for x in want):
        raise NotTried(f"{what}: the operator is not smooth here")
    for i, (one, other) in enumerate(zip(got, want, strict=True)):
        known = other.isfinite()
        wrong = known & ~((one.detach() - other).abs() <= 1e-4 * (1 + other.abs()))
        assert not wrong.any(), (
            f"{what}: {int(wrong.sum())} of {wrong.numel()} values of result {i} are wrong; the first is "
            f"{one.detach()[wrong][0].item():.6g}, finite differences give {other[wrong][0].item():.6g}"
        )


def project(results: list[Tensor], transform: bool = False) -> Tensor:
    """A number that depends on each result, by weights of its own; the gradients of these are not contiguous."""
    total = torch.zeros((), dtype=torch.float64)
    for r, w in zip(results, random_like(results, 11), strict=True):
        total = total + ((r.mT * w.mT.contiguous()).sum() if transform and r.dim() > 1 else (r * w).sum())
    return total
