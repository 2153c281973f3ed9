"""Checks of derivatives against finite differences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .slopes import directions, finite_difference, project, same_slopes, wide


def gradients(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Gradients are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(lambda *x: [project(f(*x))], inputs, tangents, step)
    for transform, name in ((False, "gradients"), (True, "gradients, where those of the results are transposed")):
        leaves = [x.clone().requires_grad_() for x in inputs]
        found = torch.autograd.grad(project(f(*leaves), transform), leaves)
        same_slopes([torch.stack([(g * t).sum() for g, t in zip(found, tangents, strict=True)]).sum()], want, name)
    for i, x in enumerate(inputs):
        alone = [t if j == i else torch.zeros_like(t) for j, t in enumerate(tangents)]
        want = finite_difference(lambda *x: [project(f(*x))], inputs, alone, step)
        same_slopes([(found[i] * tangents[i]).sum()], want, f"gradient of differentiable tensor {i}")


def second_derivatives(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Gradients of gradients are the slopes of gradients."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)

    def slopes(*inputs: Tensor, create_graph: bool = False) -> list[Tensor]:
        leaves = [x if x.requires_grad else x.clone().requires_grad_() for x in inputs]
        total = (project(f(*leaves)) + 1) ** 2
        return list(torch.autograd.grad(total, leaves, create_graph=create_graph))

    leaves = [x.clone().requires_grad_() for x in inputs]
    first = project(slopes(*leaves, create_graph=True))
    # Gradients that do not require grad are constants, or say so wrongly: finite differences show it.
    second = torch.autograd.grad(first, leaves, allow_unused=True) if first.requires_grad else []
    got = sum((g * t).sum() for g, t in zip(second, tangents, strict=False) if g is not None)
    want = finite_difference(lambda *x: [project(slopes(*x))], inputs, tangents, step)
    same_slopes([torch.as_tensor(got)], want, "second derivatives")


def forward_mode(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Tangents of dual numbers are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(f, inputs, tangents, step)
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)]
        found = [torch.autograd.forward_ad.unpack_dual(r).tangent for r in f(*duals)]
    got = [torch.zeros_like(w) if t is None else t for t, w in zip(found, want, strict=True)]
    same_slopes(got, want, "tangents of dual numbers")


def func_jvp(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Tangents of torch.func.jvp are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(f, inputs, tangents, step)
    got = torch.func.jvp(lambda *x: tuple(f(*x)), tuple(inputs), tuple(tangents))[1]
    same_slopes(list(got), want, "tangents of torch.func.jvp")


def func_grad(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> None:
    """Gradients of torch.func.grad are the slopes that finite differences have."""
    f, inputs = wide(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(lambda *x: [project(f(*x))], inputs, tangents, step)
    found = torch.func.grad(lambda *x: project(f(*x)), tuple(range(len(inputs))))(*inputs)
    got = sum((g * t).sum() for g, t in zip(found, tangents, strict=True))
    same_slopes([torch.as_tensor(got)], want, "gradients of torch.func.grad")
