"""a + b."""

from __future__ import annotations

import torch
from torch import Tensor

from opwheel.dispatch import Operator
from opwheel.dispatch.fast_path import Kernels, direct_keys, explained_below

_ops = torch.ops.muladd
_kernels = Kernels("muladd")


def add(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Add two tensors: ``a + b``.

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
        return _kernels.overwrite(direct_keys(out, a, b), "add.out", out, a, b, out=out)  # type: ignore[no-any-return]
    keys = direct_keys(a, b, b)
    if keys is not None:
        try:
            return _kernels.add(keys, a, b)  # type: ignore[no-any-return]
        except RuntimeError as error:
            explained_below(error)
    return _ops.add(a, b)  # type: ignore[no-any-return]


ADD = Operator(
    "add",
    reference=lambda a, b: a + b,
    gradients={"a": lambda grad: grad, "b": lambda grad: grad},
    linear=(("a", "b"),),
)
