"""Element-wise operators computed by ATen operators, with the checks and the promotion that their kernels have."""

from __future__ import annotations

from typing import Any

from ...overload import Overload
from ...tensor_iterator import check_inputs, check_output, has_shape, resize_output
from ...tensor_iterator import decompose as decompose_checked


def decompose(overload: Overload, values: tuple[Any, ...]) -> Any:
    """The reference in the compute dtype, on checked arguments."""
    args, _ = overload.unbind(values)
    check_inputs(overload, args)
    return decompose_checked(overload, args)


def written_result(overload: Overload, values: tuple[Any, ...]) -> Any:
    """The same of an out or in-place variant, put where it belongs."""
    result = decompose(overload, values)
    target = overload.mutated(*overload.unbind(values))
    check_output(overload, target, result.shape, result.dtype, result.device)
    if not has_shape(target, result.shape):
        resize_output(target, result.shape, result.stride())
    return target.copy_(result)
