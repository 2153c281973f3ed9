"""The kernels at the Autocast keys: torch.autocast's three policies (aten/src/ATen/autocast_mode.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _torch_private as private
from .overload import Overload, tensors_in

KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", "xpu": "AutocastXPU"}


def autocast_kernel(overload: Overload, device_type: str) -> Callable[..., Any]:
    """The kernel of a functional overload for tensors of one device type."""
    policy = overload.operator.autocast

    def is_eligible(value: Any) -> bool:
        return (
            isinstance(value, Tensor)
            and value.device.type == device_type
            and value.is_floating_point()
            and value.dtype is not torch.float64
        )

    def target_dtype(args: tuple[Any, ...]) -> torch.dtype:
        if policy == "float32":
            return torch.float32
        lower = torch.get_autocast_dtype(device_type)
        if policy == "lower_precision":
            return lower
        dtypes = {value.dtype for value in tensors_in(args) if is_eligible(value)}
        return lower if dtypes <= {lower} else torch.float32

    def cast(value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return [cast(one, dtype) for one in value]
        return value.to(dtype) if is_eligible(value) else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = target_dtype((*args, *kwargs.values()))
        given = [cast(value, dtype) for value in args]
        named = {name: cast(value, dtype) for name, value in kwargs.items()}
        with private.without_dispatch_key(KEYS[device_type]):
            return overload.op(*given, **named)

    return kernel
