"""The kernel at the BackendSelect key: an operator without tensors computes on the device that an argument names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._torch import private
from .overload import Overload


def backend_select_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for an overload without tensor arguments."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        keys = private.keyset(str(private.dispatch_key_of(device_of(overload, overload.bind(args, kwargs)).type)))
        return overload.op.redispatch(keys, *args, **kwargs)

    return kernel


def device_of(overload: Overload, values: tuple[Any, ...]) -> torch.device:
    """Where a call computes: on its tensors' device, else on the one that it names, else on PyTorch's default one."""
    tensors = overload.all_tensors(values)
    if tensors:
        return max((tensor.device for tensor in tensors), key=lambda device: device.type != "cpu")
    named = None if overload.device_argument is None else values[overload.device_argument]
    return torch.get_default_device() if named is None else torch.device(named)
