"""torch.utils.flop_counter: what a call counts for. Imported with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula

from .overload import Overload, as_tuple


def register(overloads: Iterable[Overload]) -> None:
    """Register a formula for each operator."""
    by_name = {overload.name.partition(".")[0]: overload for overload in overloads}
    for name, overload in by_name.items():
        packet = getattr(getattr(torch.ops, overload.namespace), name)
        if packet not in flop_registry:  # by an earlier attempt to import the library, which failed afterwards
            register_flop_formula(packet, get_raw=True)(_formula(overload))


def _formula(overload: Overload) -> Callable[..., int]:
    flops = overload.operator.flops

    def formula(*args: Any, out_val: Any, **kwargs: Any) -> int:
        if callable(flops):
            return flops(*args, **kwargs)
        return flops * sum(int(result.numel()) for result in as_tuple(out_val))

    return formula
