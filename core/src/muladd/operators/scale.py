"""x * factor with a number."""

from opwheel import Elementwise, Operator

SCALE = Operator(
    "scale",
    reference=lambda x, factor: x * factor,
    rule=Elementwise(linear=(("x",),)),
    derivatives={"x": "scale(grad, factor)"},
    tensor_variant={"factor": "mul"},
    doc="""Multiply a tensor by a number: ``x * factor``.

    Args:
        x: tensor of any shape; float16, bfloat16, float32 or float64.
        factor: a number, or a tensor that broadcasts with ``x`` (then this is :func:`mul`).
        out: as in :func:`muladd`.

    Returns:
        A tensor of ``x``'s shape and dtype; strides as in :func:`muladd`.

    Raises:
        RuntimeError: as :func:`muladd`.
        TypeError: ``factor`` is neither a number nor a tensor.
        OverflowError: ``factor`` is a number beyond every float.
        opwheel.registry.NoKernelError: no backend for the tensor's device is loaded.
    """,
)
