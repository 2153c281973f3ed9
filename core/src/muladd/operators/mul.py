"""a * b."""

from opwheel import Operator, functions_of

from .muladd_backward import BOTH_FACTORS

_muladd = functions_of("muladd")

MUL = Operator(
    "mul",
    reference=lambda a, b: a * b,
    gradients={"a": lambda grad, b: _muladd.mul(grad, b), "b": lambda grad, a: _muladd.mul(grad, a)},
    joint_gradient=BOTH_FACTORS,
    linear=(("a",), ("b",)),
    doc="""Multiply two tensors: ``a * b``.

    Args:
        a: tensor of any shape; float16, bfloat16, float32 or float64.
        b: tensor that broadcasts with ``a``.
        out: as in :func:`muladd`.

    Returns:
        A tensor of the broadcast shape, with dtype and strides as in :func:`muladd`.

    Raises:
        RuntimeError: as :func:`muladd`.
        opwheel.registry.NoKernelError: no backend for the tensors' device is loaded.
    """,
)
