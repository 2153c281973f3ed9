"""The kernels at the Autocast keys: torch.autocast's three policies (aten/src/ATen/autocast_mode.h)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor

from .._torch import private
from .overload import Overload, tensors_in

KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", "xpu": "AutocastXPU"}


def autocast_kernel(overload: Overload, device_type: str) -> Callable[..., Any]:
    """The kernel of a functional overload for tensors of one device type."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = _target_dtype(overload, device_type, (*args, *kwargs.values()))
        given = [_cast(value, device_type, dtype) for value in args]
        named = {name: _cast(value, device_type, dtype) for name, value in kwargs.items()}
        with private.without_dispatch_key(KEYS[device_type]):
            return overload.op(*given, **named)

    return kernel


def as_cast(overload: Overload, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as the kernels at the Autocast keys pass them on: transforms of ``torch.func`` see them earlier."""
    if overload.mutates or not private.any_autocast_is_enabled():
        return values
    for device_type in filter(torch.is_autocast_enabled, KEYS):
        dtype = _target_dtype(overload, device_type, values)
        values = tuple([_cast(value, device_type, dtype) for value in values])
    return values


def off() -> AbstractContextManager[Any]:
    """A context in which ATen operators compute in the dtypes that they are given."""
    enabled = filter(torch.is_autocast_enabled, KEYS) if private.any_autocast_is_enabled() else ()
    stack = ExitStack()
    for device_type in enabled:
        stack.enter_context(torch.autocast(device_type, enabled=False))
    return stack


def _is_eligible(value: Any, device_type: str) -> bool:
    return (
        isinstance(value, Tensor)
        and value.device.type == device_type
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _target_dtype(overload: Overload, device_type: str, values: tuple[Any, ...]) -> torch.dtype:
    policy = overload.operator.autocast
    if policy == "float32":
        return torch.float32
    lower = torch.get_autocast_dtype(device_type)
    if policy == "lower_precision":
        return lower
    dtypes = {value.dtype for value in tensors_in(values) if _is_eligible(value, device_type)}
    return lower if dtypes <= {lower} else torch.float32


def _cast(value: Any, device_type: str, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(one, device_type, dtype) for one in value]
    return value.to(dtype) if _is_eligible(value, device_type) else value
