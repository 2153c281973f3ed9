"""Both gradients of a * b in one pass: (grad * b, grad * a). Called by autograd, not by users."""

from __future__ import annotations

import torch

from ..dispatch import Operator

_ops = torch.ops.muladd

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
