"""Shape-only kernels: what comes out, without computing it. They agree with the real kernels on strides, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .elementwise import check_output, has_shape, infer, output_strides, resize_output
from .overlap import check_elements_apart
from .overload import Overload


def fake_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for meta and fake tensors."""
    result_count = len(overload.schema.returns)

    def functional(*args: Any) -> Any:
        shape, dtype = infer(overload, args)
        tensors = overload.tensors(args)
        strides = output_strides(tensors, shape)
        results = tuple(tensors[0].new_empty_strided(shape, strides, dtype=dtype) for _ in range(result_count))
        return results if result_count > 1 else results[0]

    def mutating(*args: Any, **kwargs: Any) -> Tensor:
        shape, dtype = infer(overload, args)
        tensors = overload.tensors(args)
        target = overload.mutated(args, kwargs)
        check_output(overload, target, shape, dtype, tensors[0].device)
        check_elements_apart(overload, target)
        if not has_shape(target, shape):
            resize_output(target, shape, output_strides(tensors, shape))
        return target

    return mutating if overload.mutates else functional
