"""Both gradients of a * b in one pass: (grad * b, grad * a). Called by autograd, not by users."""

from opwheel import JointGradient, Operator, functions_of

_muladd = functions_of("muladd")

# What mul, muladd and fma declare for their factors.
BOTH_FACTORS = JointGradient(("a", "b"), lambda grad, a, b: _muladd.muladd_backward(grad, a, b))

MULADD_BACKWARD = Operator(
    "muladd_backward",
    reference=lambda grad, a, b: (grad * b, grad * a),
    # grad_0 and grad_1 come in for the first and the second result.
    gradients={
        "grad": lambda grad_0, grad_1, a, b: _muladd.fma(grad_0, b, _muladd.mul(grad_1, a)),
        "a": lambda grad_1, grad: _muladd.mul(grad_1, grad),
        "b": lambda grad_0, grad: _muladd.mul(grad_0, grad),
    },
    linear=(("grad",), ("a", "b")),
)
