"""x * factor with a number."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dispatch import Operator
from ..dispatch.direct import Kernels, direct_keys, explained_below
from .arguments import is_tensor, number
from .mul import mul

_ops = torch.ops.muladd
_kernels = Kernels("muladd")


def scale(x: Tensor, factor: float | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply a tensor by a number: ``x * factor``.

    Args:
        x: tensor of any shape; float16, bfloat16, float32 or float64.
        factor: a number, or a tensor that broadcasts with ``x`` (then this is :func:`mul`).
        out: as in :func:`muladd`.

    Returns:
        A tensor of ``x``'s shape and dtype; strides as in :func:`muladd`.

    Raises:
        RuntimeError: as :func:`muladd`.
        TypeError: ``factor`` is neither a number nor a tensor.
        OverflowError: ``factor`` is a number beyond every float.
        opwheel.registry.NoKernelError: no backend for the tensor's device is loaded.
    """
    if type(factor) is not float:
        if is_tensor(factor):
            return mul(x, factor, out=out)
        factor = number(factor, "scale: factor")
    if out is not None:
        return _kernels.overwrite(direct_keys(out, x, x), "scale.out", out, x, factor, out=out)  # type: ignore[no-any-return]
    keys = direct_keys(x, x, x)
    if keys is not None:
        try:
            return _kernels.scale(keys, x, factor)  # type: ignore[no-any-return]
        except RuntimeError as error:
            explained_below(error)
    return _ops.scale(x, factor)  # type: ignore[no-any-return]


SCALE = Operator(
    "scale",
    reference=lambda x, factor: x * factor,
    gradients={"x": lambda grad, factor: _ops.scale(grad, factor)},
    linear=(("x",),),
)
