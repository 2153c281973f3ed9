"""a * b + c with a number c: functional, out and in-place."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dispatch import Operator
from ..dispatch.direct import Kernels, direct_keys, explained_below
from .arguments import is_tensor, number
from .fma import fma
from .muladd_backward import BOTH_FACTORS

_ops = torch.ops.muladd
_kernels = Kernels("muladd")


def muladd(a: Tensor, b: Tensor, c: float | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply and add in one pass over memory: ``a * b + c``.

    Args:
        a: tensor of any shape; float16, bfloat16, float32 or float64.
        b: tensor that broadcasts with ``a``.
        c: a number, or a tensor that broadcasts with ``a`` and ``b`` (then this is :func:`fma`).
        out: where the result goes: a tensor of the result's dtype and shape, or an empty one, which is resized.

    Returns:
        A tensor of the broadcast shape. Its dtype is ``torch.result_type`` of the tensors; float16 and bfloat16 are
        computed in float32 and rounded once. Its strides are those that PyTorch's own element-wise operators give.

    Raises:
        RuntimeError: the shapes do not broadcast, a dtype is not supported, the tensors are on different devices, or
            ``out`` does not fit or overlaps an input.
        torch.OutOfMemoryError: there is no room for the result on the device.
        TypeError: ``c`` is neither a number nor a tensor, or a tensor is None.
        OverflowError: ``c`` is a number beyond every float.
        opwheel.registry.NoKernelError: no backend for the tensors' device is loaded.
    """
    if type(c) is not float:
        if is_tensor(c):
            return fma(a, b, c, out=out)
        c = number(c, "muladd: c")
    if out is not None:
        return _kernels.overwrite(direct_keys(out, a, b), "muladd.out", out, a, b, c, out=out)  # type: ignore[no-any-return]
    keys = direct_keys(a, b, b)
    if keys is not None:
        try:
            return _kernels.muladd(keys, a, b, c)  # type: ignore[no-any-return]
        except RuntimeError as error:
            explained_below(error)
    return _ops.muladd(a, b, c)  # type: ignore[no-any-return]


def muladd_(a: Tensor, b: Tensor, c: float) -> Tensor:
    """:func:`muladd` in place: ``a`` becomes ``a * b + c``.

    Args:
        a: tensor that is overwritten. Its shape and dtype must be the result's.
        b: tensor that broadcasts to ``a``. It may be ``a`` or a view of it; gradients are those of what it was before.
        c: a number.

    Returns:
        ``a``.

    Raises:
        RuntimeError: as :func:`muladd`, with ``a`` in the place of ``out``.
            With a gradient to record, also: ``a`` is a leaf that requires grad, or a view that PyTorch does not let be
            modified. Nothing has been written then.
        TypeError: ``c`` is not a number.
        OverflowError: as :func:`muladd`.
    """
    if type(c) is not float:
        c = number(c, "muladd_: c", "a number")
    return _kernels.overwrite(direct_keys(a, b, b), "muladd_", a, a, b, c)  # type: ignore[no-any-return]


MULADD = Operator(
    "muladd",
    reference=lambda a, b, c: a * b + c,
    gradients={"a": lambda grad, b: _ops.mul(grad, b), "b": lambda grad, a: _ops.mul(grad, a)},
    joint_gradient=BOTH_FACTORS,
    flops=2,
)
