"""The operators in terms of ATen, as ``torch.func``, ``torch.export`` and ``torch.compile`` take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import autocast
from .overload import Overload, as_tuple


def decompose(overload: Overload, values: tuple[Any, ...]) -> Any:
    """A call in ATen operators, with the results that a kernel has: new tensors, and only some with a gradient.

    Autocast is off meanwhile: a kernel computes in the dtypes that it is given.
    """
    if overload.constants:
        values = overload.as_constants(values)
    with autocast.off():
        results = overload.rule.decompose(overload, values)
    if overload.mutates:
        return results
    from .overlap import apart  # not imported with the library

    new = apart(as_tuple(results), overload.all_tensors(values))
    fixed = overload.without_gradient
    new = [r.detach() if name in fixed else r for name, r in zip(overload.result_names, new, strict=True)]
    return tuple(new) if isinstance(results, tuple) else new[0]


def decomposition_table(overloads: Iterable[Overload]) -> dict[Any, Callable[..., Any]]:
    """ATen decompositions of the overloads that do not write to arguments."""
    return {overload.op: _decomposition(overload) for overload in overloads if not overload.mutates}


def _decomposition(overload: Overload) -> Callable[..., Any]:
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        return decompose(overload, overload.bind(args, kwargs))

    return decomposition
