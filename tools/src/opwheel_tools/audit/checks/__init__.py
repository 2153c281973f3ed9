"""The checks. Each takes an operator and a call's arguments, needs PyTorch alone, and is a part of its reproductions.

A check raises ``AssertionError`` with what is wrong, and ``NotTried`` with why it says nothing about this operator.
Every other exception is the operator's. ``step`` is the size of a finite difference.
"""

from __future__ import annotations

from collections.abc import Callable

from . import bounds, common, derivatives, layouts, repetition, results, slopes, transforms

# What a reproduction takes its source from, in the order in which the parts need each other.
MODULES = (common, results, layouts, bounds, repetition, slopes, derivatives, transforms)

CHECKS: dict[str, Callable[..., None]] = {
    "call": results.call,
    "fake": results.fake,
    "writes": results.writes,
    "aliases": results.aliases,
    "strides": layouts.strides,
    "expanded": layouts.expanded,
    "offset": layouts.offset,
    "bounds": bounds.bounds,
    "empty": results.empty,
    "repeatable": repetition.repeatable,
    "threads": repetition.threads,
    "uninitialized": repetition.uninitialized,
    "gradients": derivatives.gradients,
    "second derivatives": derivatives.second_derivatives,
    "forward mode": derivatives.forward_mode,
    "torch.func.jvp": derivatives.func_jvp,
    "torch.func.grad": derivatives.func_grad,
    "vmap": transforms.vmap,
    "autocast": transforms.autocast,
    "compile": transforms.compiled,
    "export": transforms.export,
}
