"""a * b + c with three tensors."""

from opwheel import Elementwise, Operator

from .muladd_backward import FACTORS

FMA = Operator(
    "fma",
    reference=lambda a, b, c: a * b + c,
    rule=Elementwise(linear=(("a", "c"), ("b", "c"))),
    derivatives=FACTORS | {"c": "grad"},
    flops=2,
    doc="""Fused multiply-add of three tensors: ``a * b + c``, as in scale-and-shift, FiLM and adaLN.

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
    """,
)
