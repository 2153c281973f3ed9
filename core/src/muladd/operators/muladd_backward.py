"""Both gradients of a * b in one pass: (grad * b, grad * a). Called by autograd, not by users."""

from __future__ import annotations

import torch
from torch import Tensor

from opwheel.dispatch import JointGradient, Operator
from opwheel.dispatch.fast_path import Kernels, direct_keys, explained_below

_ops = torch.ops.muladd
_kernels = Kernels("muladd")


def muladd_backward(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of ``a * b`` with respect to ``a`` and ``b``, for the gradient of the product."""
    keys = direct_keys(grad, a, b)
    if keys is not None:
        try:
            return _kernels.muladd_backward(keys, grad, a, b)  # type: ignore[no-any-return]
        except RuntimeError as error:
            explained_below(error)
    return _ops.muladd_backward(grad, a, b)  # type: ignore[no-any-return]


# What mul, muladd and fma declare for their factors.
BOTH_FACTORS = JointGradient(("a", "b"), muladd_backward)

MULADD_BACKWARD = Operator(
    "muladd_backward",
    reference=lambda grad, a, b: (grad * b, grad * a),
    # grad_0 and grad_1 come in for the first and the second result.
    gradients={
        "grad": lambda grad_0, grad_1, a, b: _ops.fma(grad_0, b, _ops.mul(grad_1, a)),
        "a": lambda grad_1, grad: _ops.mul(grad_1, grad),
        "b": lambda grad_0, grad: _ops.mul(grad_0, grad),
    },
    linear=(("grad",), ("a", "b")),
)
