"""x * factor with a number."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dispatch import Operator

_ops = torch.ops.muladd


def scale(x: Tensor, factor: float, *, out: Tensor | None = None) -> Tensor:
    """Multiply a tensor by a number: ``x * factor``.

    Args:
        x: tensor of any shape; float16, bfloat16, float32 or float64.
        factor: a number.
        out: as in :func:`muladd`.

    Returns:
        A tensor of ``x``'s shape and dtype; strides as in :func:`muladd`.

    Raises:
        RuntimeError: as :func:`muladd`.
        muladd.registry.NoKernelError: no backend for the tensor's device is loaded.
    """
    return _ops.scale(x, factor) if out is None else _ops.scale.out(x, factor, out=out)  # type: ignore[no-any-return]


SCALE = Operator(
    "scale",
    reference=lambda x, factor: x * factor,
    gradients={"x": lambda grad, factor: _ops.scale(grad, factor)},
    linear=(("x",),),
)
