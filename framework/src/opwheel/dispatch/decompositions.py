"""The operators in terms of ATen, as ``torch.export`` and ``torch.compile`` take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .overload import Overload


def decomposition_table(overloads: Iterable[Overload]) -> dict[Any, Callable[..., Any]]:
    """ATen decompositions of the overloads that do not write to arguments."""
    return {overload.op: _decomposition(overload) for overload in overloads if not overload.mutates}


def _decomposition(overload: Overload) -> Callable[..., Any]:
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        return overload.rule.decompose(overload, overload.bind(args, kwargs))

    return decomposition
