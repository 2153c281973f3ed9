"""a * b."""

from __future__ import annotations

import torch
from torch import Tensor

from opwheel.dispatch import Operator
from opwheel.dispatch.fast_path import Kernels, direct_keys, explained_below
from .muladd_backward import BOTH_FACTORS

_ops = torch.ops.muladd
_kernels = Kernels("muladd")


def mul(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply two tensors: ``a * b``.

    Args:
        a: tensor of any shape; float16, bfloat16, float32 or float64.
        b: tensor that broadcasts with ``a``.
        out: as in :func:`muladd`.

    Returns:
        A tensor of the broadcast shape, with dtype and strides as in :func:`muladd`.

    Raises:
        RuntimeError: as :func:`muladd`.
        opwheel.registry.NoKernelError: no backend for the tensors' device is loaded.
    """
    if out is not None:
        return _kernels.overwrite(direct_keys(out, a, b), "mul.out", out, a, b, out=out)  # type: ignore[no-any-return]
    keys = direct_keys(a, b, b)
    if keys is not None:
        try:
            return _kernels.mul(keys, a, b)  # type: ignore[no-any-return]
        except RuntimeError as error:
            explained_below(error)
    return _ops.mul(a, b)  # type: ignore[no-any-return]


MUL = Operator(
    "mul",
    reference=lambda a, b: a * b,
    gradients={"a": lambda grad, b: _ops.mul(grad, b), "b": lambda grad, a: _ops.mul(grad, a)},
    joint_gradient=BOTH_FACTORS,
    linear=(("a",), ("b",)),
)
