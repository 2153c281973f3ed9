"""Both gradients of a * b in one pass: (grad_output * b, grad_output * a). Called by autograd, not by users."""

from opwheel import Elementwise, Operator

# What mul, muladd and fma declare for their factors: both at once where both are needed.
FACTORS = {"a": "mul(grad, b)", "b": "mul(grad, a)", "a, b": "muladd_backward(grad, a, b)"}

MULADD_BACKWARD = Operator(
    "muladd_backward",
    reference=lambda grad_output, a, b: (grad_output * b, grad_output * a),
    rule=Elementwise(linear=(("grad_output",), ("a", "b"))),
    # The gradients of its two results are grads[0] and grads[1].
    derivatives={
        "grad_output": "fma(grads[0], b, mul(grads[1], a))",
        "a": "mul(grads[1], grad_output)",
        "b": "mul(grads[0], grad_output)",
    },
)
