"""a * b."""

from opwheel import Elementwise, Operator

from .muladd_backward import FACTORS

MUL = Operator(
    "mul",
    reference=lambda a, b: a * b,
    rule=Elementwise(linear=(("a",), ("b",))),
    derivatives=FACTORS,
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
