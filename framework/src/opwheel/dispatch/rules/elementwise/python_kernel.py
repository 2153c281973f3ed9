"""A function of contiguous tensors of one shape as the kernel of an element-wise operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...elementwise import compute_dtype, has_shape, infer, output_strides, prepare
from ...overload import Overload


def python_kernel(overload: Overload, function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel for the dispatcher."""

    def kernel(*args: Any) -> Any:
        shape, dtype = infer(overload, args)
        tensors = overload.tensors(args)
        prepared = prepare(args, compute_dtype(dtype))
        answer = function(*(value.contiguous() if isinstance(value, Tensor) else value for value in prepared))
        results = answer if isinstance(answer, tuple) else (answer,)
        if len(results) != len(overload.schema.returns):
            raise RuntimeError(
                f"{overload.qualified_name}: its kernel returned {len(results)} values, the schema has "
                f"{len(overload.schema.returns)}"
            )
        strides = output_strides(tensors, shape)
        laid_out = tuple(_laid_out(overload, result, tensors[0], shape, strides, dtype) for result in results)
        return laid_out if len(laid_out) > 1 else laid_out[0]

    return kernel


def _laid_out(
    overload: Overload, result: Any, like: Tensor, shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    if not isinstance(result, Tensor) or not has_shape(result, shape):
        given = f"a tensor of shape {tuple(result.shape)}" if isinstance(result, Tensor) else repr(result)
        raise RuntimeError(
            f"{overload.qualified_name}: its kernel returned {given}, expected a tensor of shape {tuple(shape)}"
        )
    # A new tensor in any case: the function may have handed back an argument.
    return like.new_empty_strided(shape, strides, dtype=dtype).copy_(result)
