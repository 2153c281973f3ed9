"""The backend triton, for GPUs of NVIDIA and AMD; where TRITON_INTERPRET=1, for the CPU, by Triton's interpreter."""

from opwheel import Backend, hookimpl

from ._backend import describe
from ._interpreted import IS_INTERPRETED


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that transformer_ops calls."""
    return describe("triton", "cpu", "CPU") if IS_INTERPRETED else describe("triton", "cuda", "CUDA")
