"""An operator as a differentiable function in float64, and its slopes by finite differences."""

# ruff: noqa: D103
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...judge.rounding import symmetric_like
from .common import NotTried, copies, is_random, tensors_of, written


def differentiable(
    op: Any, args: Any, kwargs: Any, dtype: torch.dtype = torch.float64
) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """The operator in a dtype as a function of its differentiable tensors, and these."""
    if is_random(op):
        raise NotTried("the operator is random")
    if written(op):
        raise NotTried("the operator writes to its arguments")
    if any(x.is_complex() for x in tensors_of((args, kwargs))):
        raise NotTried("complex numbers")
    leaves, spec = pytree.tree_flatten((copies(args), copies(kwargs)))
    if any(isinstance(x, Tensor) and (x.layout is not torch.strided or x.is_quantized) for x in leaves):
        raise NotTried("sparse or quantized tensors")
    leaves = [x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for x in leaves]
    floats = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point()]

    def function(*inputs: Tensor) -> list[Tensor]:
        values = list(leaves)
        for i, one in zip(chosen, inputs, strict=True):
            values[i] = one
        a, k = pytree.tree_unflatten(values, spec)
        return [r for r in tensors_of(op(*a, **k)) if r.is_floating_point()]

    # What has no gradient in reverse mode is not a variable: boxes of a pooling, statistics of a normalization.
    chosen = floats
    probes = [leaves[i].clone().requires_grad_() for i in floats]  # a backward may overwrite them
    try:
        results = [r for r in function(*probes) if r.requires_grad]
    except (RuntimeError, NotImplementedError) as error:
        raise NotTried(f"the operator refuses {dtype} tensors that require grad: {error}") from error
    if not results:
        raise NotTried("the results do not require grad")
    ones = [torch.ones_like(r) for r in results]
    gradients = torch.autograd.grad(results, probes, ones, allow_unused=True)
    chosen = [i for i, g in zip(floats, gradients, strict=True) if g is not None]
    if not chosen:
        raise NotTried("there is no gradient")
    variables = [leaves[i] for i in chosen]
    has_gradient = [r.requires_grad for r in function(*(x.clone().requires_grad_() for x in variables))]

    def of(*inputs: Tensor) -> list[Tensor]:
        return [r for r, is_one in zip(function(*inputs), has_gradient, strict=True) if is_one]

    return of, variables


def random_like(tensors: list[Tensor], seed: int) -> list[Tensor]:
    """Between 0.25 and 1.25, each a number of every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.rand(x.shape, generator=generator) * 64).round().double() / 64 + 0.25 for x in tensors]


def directions(inputs: list[Tensor]) -> list[Tensor]:
    return [symmetric_like(x, t) for x, t in zip(inputs, random_like(inputs, 7), strict=True)]


def finite_difference(f: Any, inputs: list[Tensor], tangents: list[Tensor], step: float) -> list[Tensor]:
    """The directional derivative; nan where two sizes of the step, or both sides, do not agree: at a kink or a jump.

    So it is where the result has a narrower dtype, in which a step is no more than some units in the last place.
    """

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
        is_fine = torch.finfo(here.dtype).eps * here.abs() <= small * near * size
        slopes.append(torch.where(smooth & is_fine, central, torch.nan))
    return slopes


def same_slopes(got: dict[str, Tensor], want: list[Tensor], how: str) -> Iterator[str]:
    """Where slopes are other than finite differences, as far as the operator is smooth."""
    if not any(x.isfinite().any() for x in want):
        raise NotTried(f"{how}: the operator is not smooth here")
    for (name, one), other in zip(got.items(), want, strict=True):
        wrong = other.isfinite() & ~((one.detach() - other).abs() <= 1e-4 * (1 + other.abs()))
        if wrong.any():
            yield (
                f"{name}, {how}: {int(wrong.sum())} of {wrong.numel()} values are wrong; the first is "
                f"{one.detach()[wrong][0].item():.6g}, finite differences give {other[wrong][0].item():.6g}"
            )


def weighted(results: list[Tensor], weights: list[Tensor], transform: bool = False) -> Tensor:
    """The sum of the results with weights; the gradients of transformed ones are not contiguous."""
    total = torch.zeros((), dtype=torch.float64)
    for r, w in zip(results, weights, strict=True):
        total = total + ((r.mT * w.mT.contiguous()).sum() if transform and r.dim() > 1 else (r * w).sum())
    return total


def project(results: list[Tensor], transform: bool = False) -> Tensor:
    """A number that depends on each result, by weights of its own."""
    return weighted(results, random_like(results, 11), transform)
