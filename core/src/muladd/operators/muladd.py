"""a * b + c with a number c: functional, out and in-place."""

from opwheel import Elementwise, Operator

from .muladd_backward import FACTORS

MULADD = Operator(
    "muladd",
    reference=lambda a, b, c: a * b + c,
    rule=Elementwise(),
    derivatives=FACTORS,
    flops=2,
    tensor_variant={"c": "fma"},
    doc="""Multiply and add in one pass over memory: ``a * b + c``.

    Args:
        a: tensor of any shape; float16, bfloat16, float32 or float64.
        b: tensor that broadcasts with ``a``.
        c: a number, or a tensor that broadcasts with ``a`` and ``b`` (then this is :func:`fma`).
        out: where the result goes: a tensor of the result's dtype and shape, or an empty one, which is resized.

    Returns:
        A tensor of the broadcast shape. Its dtype is ``torch.result_type`` of the tensors; float16 and bfloat16 are
        computed in float32 and rounded once. Its strides are those that PyTorch's own element-wise operators give.

    Raises:
        RuntimeError: the shapes do not broadcast, a dtype is not supported, the tensors are on different devices, or
            ``out`` does not fit or overlaps an input.
        torch.OutOfMemoryError: there is no room for the result on the device.
        TypeError: ``c`` is neither a number nor a tensor, or a tensor is None.
        OverflowError: ``c`` is a number beyond every float.
        opwheel.registry.NoKernelError: no backend for the tensors' device is loaded.
    """,
)
