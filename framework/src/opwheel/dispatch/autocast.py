"""The kernels at the Autocast keys: torch.autocast's policies (aten/src/ATen/autocast_mode.h), by argument."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor

from .._torch import private
from .autocast_policy import DEVICES, AutocastPolicy, dtype_sources, policies_of
from .overload import Overload, tensors_in

# float64 is left alone, as PyTorch's own rules do; and so is float8, whose values mean something with a scale alone.
_CAST_BYTES = (2, 4)
KEYS = {device_type: f"Autocast{device_type.upper()}" for device_type in DEVICES}


def autocast_kernel(overload: Overload, device_type: str) -> Callable[..., Any]:
    """The kernel of a functional overload for tensors of one device type."""
    policies, sources = policies_of(overload, device_type), dtype_sources(overload, device_type)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        values = overload.bind(args, kwargs)
        given = _cast(values, policies, device_type)
        with private.without_dispatch_key(KEYS[device_type]):
            results = overload.call(overload.op, given)
        return _returned(results, sources, values, device_type)

    return kernel


def call_as_cast(overload: Overload, values: tuple[Any, ...], call: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Call a function as the kernels at the Autocast keys call the operator: transforms of ``torch.func`` come earlier.

    Args:
        overload: whose declaration says what is cast.
        values: of all arguments, as the transform has them.
        call: is given the values as they are cast.
    """
    if overload.mutates or not private.any_autocast_is_enabled():
        return call(values)
    given, enabled = values, list(filter(torch.is_autocast_enabled, KEYS))
    for device_type in enabled:
        given = _cast(given, policies_of(overload, device_type), device_type)
    results = call(given)
    for device_type in enabled:
        results = _returned(results, dtype_sources(overload, device_type), values, device_type)
    return results


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
        and value.dtype.itemsize in _CAST_BYTES
    )


def _cast(values: tuple[Any, ...], policies: tuple[AutocastPolicy | None, ...], device_type: str) -> tuple[Any, ...]:
    """The values of all arguments, each cast as its policy says."""
    lower = torch.get_autocast_dtype(device_type)
    promoted = (value for value, policy in zip(values, policies, strict=True) if policy == "promote")
    dtypes = {tensor.dtype for tensor in tensors_in(promoted) if _is_eligible(tensor, device_type)}
    targets: dict[AutocastPolicy | None, torch.dtype | None] = {
        "promote": lower if dtypes <= {lower} else torch.float32,
        "lower_precision": lower,
        "float32": torch.float32,
        None: None,
    }
    return tuple([_to(value, targets[policy], device_type) for value, policy in zip(values, policies, strict=True)])


def _to(value: Any, dtype: torch.dtype | None, device_type: str) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to(one, dtype, device_type) for one in value]
    return value if dtype is None or not _is_eligible(value, device_type) else value.to(dtype)


def _returned(results: Any, sources: tuple[int | None, ...], values: tuple[Any, ...], device_type: str) -> Any:
    """The results, those that are declared to be in the dtype that the caller gave an argument in cast to it."""
    if isinstance(results, tuple):
        pairs = zip(results, sources, strict=True)
        return tuple([_returned(one, (source,), values, device_type) for one, source in pairs])
    source: Any = None if sources[0] is None else values[sources[0]]
    is_cast = _is_eligible(source, device_type) and results.is_floating_point()
    return results.to(source.dtype) if is_cast else results
