"""Shape-only kernels: what comes out, without computing it. They agree with the real kernels on strides, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .elementwise import check_inputs, check_output, has_shape, output_strides, result_dtype
from .overload import Overload


def fake_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for meta and fake tensors."""
    result_count = len(overload.schema.returns)

    def functional(*args: Any) -> Any:
        check_inputs(overload, args)
        tensors = overload.tensors(args)
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        strides = output_strides(tensors, shape)
        results = tuple(
            tensors[0].new_empty_strided(shape, strides, dtype=result_dtype(tensors)) for _ in range(result_count)
        )
        return results if result_count > 1 else results[0]

    def mutating(*args: Any, **kwargs: Any) -> Tensor:
        check_inputs(overload, args)
        tensors = overload.tensors(args)
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        target = overload.mutated(args, kwargs)
        check_output(overload, target, shape, result_dtype(tensors), tensors[0].device)
        if not has_shape(target, shape):
            target.resize_(shape).as_strided_(shape, output_strides(tensors, shape))
        return target

    return mutating if overload.mutates else functional
