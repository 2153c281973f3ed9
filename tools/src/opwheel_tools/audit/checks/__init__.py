"""The checks. Each takes an operator and a call's arguments, needs PyTorch alone, and is a part of its reproductions.

A check yields a line for each thing that is wrong: where, a colon, what. The same thing has the same words before the
colon whatever the call. It raises ``NotTried`` with why it says nothing about this operator, and ``Noted`` with what
PyTorch does to every such operator. Other exceptions are the operator's, but for those that the check's own lines
raise. ``step`` is the size of a finite difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...judge import rounding as measure
from . import bounds, common, derivatives, layouts, repetition, results, rounding, slopes, transforms

# What a reproduction takes its source from, in the order in which the parts need each other.
MODULES = (measure, common, rounding, results, layouts, bounds, repetition, slopes, derivatives, transforms)

CHECKS: dict[str, Callable[..., Iterator[str]]] = {
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
    "gradients by dtype": derivatives.gradients_by_dtype,
    "backward": derivatives.backward,
    "second derivatives": derivatives.second_derivatives,
    "forward mode": derivatives.forward_mode,
    "torch.func.jvp": derivatives.func_jvp,
    "torch.func.grad": derivatives.func_grad,
    "vmap": transforms.vmap,
    "autocast": transforms.autocast,
    "compile": transforms.compiled,
    "export": transforms.export,
}
