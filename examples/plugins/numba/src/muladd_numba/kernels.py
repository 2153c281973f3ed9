"""Universal functions of NumPy, compiled by Numba: they walk any strides and write where they are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import vectorize
from opwheel.dispatch.tensor_iterator import compute_dtype
from torch import Tensor


def _compiled(inputs: int) -> Any:
    return vectorize([f"{kind}({', '.join([kind] * inputs)})" for kind in ("float32", "float64")], cache=True)


@_compiled(3)
def _fma(a: float, b: float, c: float) -> float:
    return a * b + c


@_compiled(2)
def _mul(a: float, b: float) -> float:
    return a * b


@_compiled(2)
def _add(a: float, b: float) -> float:
    return a + b


# For each result of an operator the function, and which arguments it takes.
_RESULTS = {
    "muladd": [(_fma, (0, 1, 2))],
    "fma": [(_fma, (0, 1, 2))],
    "mul": [(_mul, (0, 1))],
    "add": [(_add, (0, 1))],
    "scale": [(_mul, (0, 1))],
    "muladd_backward": [(_mul, (0, 2)), (_mul, (0, 1))],
}


def launch(name: str, outputs: tuple[Tensor, ...], args: tuple[Any, ...]) -> None:
    """Compute an operator into ``outputs``; see :func:`opwheel.dispatch.implement`."""
    dtype = compute_dtype(outputs[0].dtype)
    arrays = [torch.as_tensor(value, dtype=dtype).detach().numpy() for value in args]
    for output, (function, chosen) in zip(outputs, _RESULTS[name], strict=True):
        operands = [arrays[position] for position in chosen]
        # Numba's loop takes out= for contiguous where all inputs are (seen in 0.68), so out= is given only where it is.
        if output.dtype is dtype and output.is_contiguous() and all(one.flags.c_contiguous for one in operands):
            function(*operands, out=output.detach().numpy())
        else:  # also because NumPy knows no bfloat16: round once, at the end
            output.copy_(torch.from_numpy(np.asarray(function(*operands))))
