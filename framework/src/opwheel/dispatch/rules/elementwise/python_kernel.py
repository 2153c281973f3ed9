"""A function of contiguous tensors of one shape as the kernel of an element-wise operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...overload import Overload, as_tuple
from ...results import copy_results
from ...tensor_iterator import compute_dtype, infer, output_strides, prepare


def python_kernel(overload: Overload, function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel for the dispatcher."""

    def kernel(*args: Any) -> Any:
        shape, dtype = infer(overload, args)
        tensors = overload.tensors(args)
        prepared = prepare(args, compute_dtype(dtype))
        answer = function(*(value.contiguous() if isinstance(value, Tensor) else value for value in prepared))
        strides = output_strides(tensors, shape)
        # New tensors in any case: the function may have returned an argument.
        outputs = tuple([tensors[0].new_empty_strided(shape, strides, dtype=dtype) for _ in overload.schema.returns])
        copy_results(overload.qualified_name, as_tuple(answer), outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    return kernel
