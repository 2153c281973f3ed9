"""Both gradients of a * b in one pass: (grad * b, grad * a). Called by autograd, not by users."""

from opwheel import Elementwise, Operator

# What mul, muladd and fma declare for their factors: both at once where both are needed.
FACTORS = {"a": "mul(grad, b)", "b": "mul(grad, a)", "a, b": "muladd_backward(grad, a, b)"}

MULADD_BACKWARD = Operator(
    "muladd_backward",
    reference=lambda grad, a, b: (grad * b, grad * a),
    rule=Elementwise(linear=(("grad",), ("a", "b"))),
    # Its argument is called grad; what comes in for the two results is grads[0] and grads[1].
    derivatives={
        "grad": "fma(grads[0], b, mul(grads[1], a))",
        "a": "mul(grads[1], grad)",
        "b": "mul(grads[0], grad)",
    },
)
