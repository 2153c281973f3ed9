"""Checks of derivatives against finite differences, in other dtypes, and of what a backward leaves behind."""

# ruff: noqa: ARG001
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .common import Noted, NotTried, close, copies, with_tensors
from .rounding import moved_arguments, step_of, units
from .slopes import differentiable, directions, finite_difference, project, random_like, same_slopes, weighted


def slope_of(gradients: Any, tangents: list[Tensor]) -> Tensor:
    """How fast a number changes in a direction, by its gradients; without one it does not."""
    parts = [(g * t).sum() for g, t in zip(gradients, tangents, strict=False) if g is not None]
    return torch.stack([torch.zeros((), dtype=torch.float64), *parts]).sum()


def gradients(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> Iterator[str]:
    """Gradients are the slopes that finite differences have: of all tensors, and where one alone requires grad."""
    f, inputs = differentiable(op, args, kwargs)
    tangents = directions(inputs)

    def all_of(transform: bool) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        return list(torch.autograd.grad(project(f(*leaves), transform), leaves))

    def alone(i: int) -> Any:
        leaf = inputs[i].clone().requires_grad_()
        total = project(f(*(leaf if j == i else x for j, x in enumerate(inputs))))
        return torch.autograd.grad(total, [leaf], allow_unused=True)[0] if total.requires_grad else None

    plain, turned = all_of(False), all_of(True)
    is_smooth = False
    for i in range(len(inputs)):
        direction = [t if j == i else torch.zeros_like(t) for j, t in enumerate(tangents)]
        want = finite_difference(lambda *x: [project(f(*x))], inputs, direction, step)
        if not want[0].isfinite():
            continue
        is_smooth = True
        ways: dict[str, Callable[[], Any]] = {
            "where all require grad": lambda: plain[i],  # noqa: B023
            "where those of the results are transposed": lambda: turned[i],  # noqa: B023
            "where no other requires grad": lambda: alone(i),  # noqa: B023
        }
        for how, gradient in ways.items():
            got = {f"gradient of tensor {i}": slope_of([gradient()], [tangents[i]])}
            if problems := list(same_slopes(got, want, how)):
                yield from problems
                break
    if not is_smooth:
        raise NotTried("gradients: the operator is not smooth here")


def gradients_by_dtype(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Gradients in float32 and in 16 bits are those in float64 of the same numbers, but for rounding."""
    tried = 0
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        near = with_tensors((args, kwargs), lambda x: x.to(dtype) if x.is_floating_point() else x)  # noqa: B023
        try:
            f, inputs = differentiable(op, near[0], near[1], dtype)
            wide, exact = differentiable(op, *near)
            leaves = [x.clone().requires_grad_() for x in inputs]
            found = torch.autograd.grad(project(f(*leaves)), leaves)
        except Exception:  # noqa: S112  # the operator refuses one of the dtypes
            continue
        if len(inputs) != len(exact):
            continue
        tried += 1
        generator = torch.Generator().manual_seed(1)
        rows = []
        for k in range(5):
            leaves = [x.clone().requires_grad_() for x in (moved_arguments(exact, dtype, generator) if k else exact)]
            results = wide(*leaves)
            weights = random_like(results, 11)
            total = weighted(results, moved_arguments(weights, dtype, generator) if k else weights)
            rows.append([g.detach() for g in torch.autograd.grad(total, leaves)])
        for i, values in enumerate(zip(*rows, strict=True)):
            most = values[0].abs().max() if values[0].numel() else 0.0
            factor = 64 if dtype is torch.float32 else 16  # formulas lose digits, of which there are less in 16 bits
            bound = factor * (units(list(values), step_of(dtype)) + step_of(dtype) * most)
            name = f"gradient of tensor {i}"
            got, want = {name: found[i].double()}, {name: values[0]}
            bounds = {name: bound.nan_to_num(torch.inf, torch.inf)}
            for problem in close(got, want, f"in {dtype}", lambda: bounds):  # noqa: B023
                yield problem.removeprefix("values of ").replace(f", in {dtype}", f" in {dtype}", 1)
    if not tried:
        raise NotTried("the operator has no gradients in float64 and another dtype")


def backward(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """A backward overwrites neither incoming gradients nor inputs, and gives the same a second time."""
    f, inputs = differentiable(op, args, kwargs)
    leaves = [x.clone().requires_grad_() for x in inputs]
    results = f(*leaves)
    incoming = random_like(results, 11)
    first = copies(torch.autograd.grad(results, leaves, incoming, retain_graph=True))
    for i, (one, kept) in enumerate(zip(incoming, random_like(results, 11), strict=True)):
        if not torch.equal(one, kept):
            yield f"incoming gradient of result {i}: the backward overwrites it"
    for i, (leaf, x) in enumerate(zip(leaves, inputs, strict=True)):
        if not torch.equal(leaf.nan_to_num(), x.nan_to_num()):
            yield f"tensor {i} after the backward: it is overwritten"
    second = torch.autograd.grad(results, leaves, random_like(results, 11), retain_graph=True)
    for i, (one, other) in enumerate(zip(second, first, strict=True)):
        bound = 1e-9 * (1 + other.abs().max()) if other.numel() else 0.0
        if not bool(((one - other).abs() <= bound).logical_or(one.isnan() & other.isnan()).all()):
            yield f"gradient of tensor {i}, by a second backward: it is another than that of the first"


def second_derivatives(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> Iterator[str]:
    """Gradients of gradients are the slopes of gradients."""
    f, inputs = differentiable(op, args, kwargs)
    tangents = directions(inputs)

    def slopes(*inputs: Tensor, create_graph: bool = False) -> list[Tensor]:
        leaves = [x if x.requires_grad else x.clone().requires_grad_() for x in inputs]
        total = (project(f(*leaves)) + 1) ** 2
        return list(torch.autograd.grad(total, leaves, create_graph=create_graph))

    leaves = [x.clone().requires_grad_() for x in inputs]
    first = project(slopes(*leaves, create_graph=True))
    # Gradients that do not require grad are constants, or say so wrongly: finite differences show it.
    second = torch.autograd.grad(first, leaves, allow_unused=True) if first.requires_grad else []
    want = finite_difference(lambda *x: [project(slopes(*x))], inputs, tangents, step)
    yield from same_slopes({"second derivatives": slope_of(second, tangents)}, want, "by torch.autograd.grad")


def tangents_are(found: list[Tensor], f: Any, inputs: list[Tensor], want: list[Tensor], how: str) -> Iterator[str]:
    """Tangents are slopes; those of operators whose derivative torch.library made are zero, whatever the operator."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    of_library = all("GeneratedBackwardFor" in type(r.grad_fn).__name__ for r in f(*leaves))
    problems = list(same_slopes({f"tangent of result {i}": one for i, one in enumerate(found)}, want, how))
    if problems and of_library and not any(one.any() for one in found):
        raise Noted("PyTorch gives zero tangents for every operator whose derivative torch.library registered")
    yield from problems


def forward_mode(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> Iterator[str]:
    """Tangents of dual numbers are the slopes that finite differences have."""
    f, inputs = differentiable(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(f, inputs, tangents, step)
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)]
        found = [torch.autograd.forward_ad.unpack_dual(r).tangent for r in f(*duals)]
    got = [torch.zeros_like(w) if t is None else t for t, w in zip(found, want, strict=True)]
    yield from tangents_are(got, f, inputs, want, "by dual numbers")


def func_jvp(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> Iterator[str]:
    """Tangents of torch.func.jvp are the slopes that finite differences have."""
    f, inputs = differentiable(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(f, inputs, tangents, step)
    got = torch.func.jvp(lambda *x: tuple(f(*x)), tuple(inputs), tuple(tangents))[1]
    yield from tangents_are(list(got), f, inputs, want, "by torch.func.jvp")


def func_grad(op: Any, args: Any, kwargs: Any, step: float = 1e-5) -> Iterator[str]:
    """Gradients of torch.func.grad are the slopes that finite differences have."""
    f, inputs = differentiable(op, args, kwargs)
    tangents = directions(inputs)
    want = finite_difference(lambda *x: [project(f(*x))], inputs, tangents, step)
    found = torch.func.grad(lambda *x: project(f(*x)), tuple(range(len(inputs))))(*inputs)
    yield from same_slopes({"gradients": slope_of(found, tangents)}, want, "by torch.func.grad")
