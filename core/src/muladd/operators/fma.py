"""a * b + c with three tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from opwheel.dispatch import Operator
from opwheel.dispatch.fast_path import Kernels, direct_keys, explained_below
from .muladd_backward import BOTH_FACTORS

_ops = torch.ops.muladd
_kernels = Kernels("muladd")


def fma(a: Tensor, b: Tensor, c: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Fused multiply-add of three tensors: ``a * b + c``, as in scale-and-shift, FiLM and adaLN.

    Args:
        a: tensor of any shape; float16, bfloat16, float32 or float64.
        b: tensor that broadcasts with ``a``.
        c: tensor that broadcasts with ``a`` and ``b``.
        out: as in :func:`muladd`.

    Returns:
        A tensor of the broadcast shape, with dtype and strides as in :func:`muladd`.

    Raises:
        RuntimeError: as :func:`muladd`.
        opwheel.registry.NoKernelError: no backend for the tensors' device is loaded.
    """
    keys = direct_keys(a, b, c)
    if out is not None:
        if type(out) is not Tensor or out.requires_grad:
            keys = None
        return _kernels.overwrite(keys, "fma.out", out, a, b, c, out=out)  # type: ignore[no-any-return]
    if keys is not None:
        try:
            return _kernels.fma(keys, a, b, c)  # type: ignore[no-any-return]
        except RuntimeError as error:
            explained_below(error)
    return _ops.fma(a, b, c)  # type: ignore[no-any-return]


FMA = Operator(
    "fma",
    reference=lambda a, b, c: a * b + c,
    gradients={
        "a": lambda grad, b: _ops.mul(grad, b),
        "b": lambda grad, a: _ops.mul(grad, a),
        "c": lambda grad: grad,
    },
    joint_gradient=BOTH_FACTORS,
    linear=(("a", "c"), ("b", "c")),
    flops=2,
)
