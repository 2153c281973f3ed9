"""Empty results of element-wise operators: what comes out, without computing it, strides included."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...overlap import check_elements_apart
from ...overload import Overload
from ...tensor_iterator import check_output, has_shape, infer, output_strides, resize_output


def functional_results(overload: Overload, args: tuple[Any, ...]) -> Any:
    """New, empty results."""
    shape, dtype = infer(overload, args)
    tensors = overload.tensors(args)
    strides = output_strides(tensors, shape)
    results = tuple(tensors[0].new_empty_strided(shape, strides, dtype=dtype) for _ in overload.schema.returns)
    return results if len(results) > 1 else results[0]


def written_output(overload: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The output of an out or in-place variant, checked, and resized where it is empty."""
    shape, dtype = infer(overload, args)
    tensors = overload.tensors(args)
    target = overload.mutated(args, kwargs)
    check_output(overload, target, shape, dtype, tensors[0].device)
    check_elements_apart(overload, target)
    if not has_shape(target, shape):
        resize_output(target, shape, output_strides(tensors, shape))
    return target
