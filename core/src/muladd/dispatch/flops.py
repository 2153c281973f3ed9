"""torch.utils.flop_counter: what a call counts for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry, register_flop_formula

from .overload import Overload


def register(overload: Overload) -> None:
    """Register the formula for all overloads that share the name of this one."""
    packet = getattr(getattr(torch.ops, overload.namespace), overload.name.partition(".")[0])
    if packet in flop_registry:
        return

    def formula(*_args: Any, out_val: Tensor | tuple[Tensor, ...], **_kwargs: Any) -> int:
        results = out_val if isinstance(out_val, tuple) else (out_val,)
        return sum(result.numel() for result in results) * overload.operator.flops

    register_flop_formula(packet, get_raw=True)(formula)
