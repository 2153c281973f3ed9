"""The backend triton_xpu, for GPUs of Intel: the same kernels at another dispatch key."""

from opwheel import Backend, hookimpl

from ._backend import describe


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that transformer_ops calls."""
    return describe("triton_xpu", "xpu", "XPU")
