"""torch.utils.flop_counter: what a call counts for. Imported with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.utils.flop_counter import flop_registry, register_flop_formula

from .overload import Overload, as_tuple


def register(overloads: Iterable[Overload]) -> None:
    """Register a formula for each operator: PyTorch knows one for all of its overloads."""
    by_name = {overload.name: overload for overload in overloads}
    called = {one.operator.training: one for one in by_name.values() if one.operator.training}
    for name, overload in by_name.items():
        if name.endswith(".out") and name.removesuffix(".out") in by_name:
            continue
        register_flop_formula(overload.packet, get_raw=True)(
            # A call counts the same whether a gradient is recorded or not.
            _formula(called.get(name, overload), has_out=f"{name}.out" in by_name)
        )


def unregister(overloads: Iterable[Overload]) -> None:
    """Remove what :func:`register` has registered."""
    for overload in overloads:
        flop_registry.pop(overload.packet, None)


def _formula(overload: Overload, *, has_out: bool) -> Callable[..., int]:
    flops = overload.operator.flops

    def formula(*args: Any, out_val: Any, **kwargs: Any) -> int:
        results = as_tuple(out_val)[: len(overload.schema.returns)]
        if has_out and "out" in kwargs:
            results = (kwargs.pop("out"),)
        return flops(*args, **kwargs) if callable(flops) else flops * sum(int(result.numel()) for result in results)

    return formula
