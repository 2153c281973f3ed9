"""Kernels in Triton for NVIDIA's GPUs; where TRITON_INTERPRET=1, for the CPU, by Triton's interpreter."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from opwheel import Backend, Probe, hookimpl

if TYPE_CHECKING:
    import torch

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def probe() -> Probe:
    """Whether there is a device for the kernels. Does not import Triton, which takes a second."""
    import torch

    if IS_INTERPRETED:
        return Probe(True, "Triton's interpreter runs the kernels on the CPU")
    if torch.version.cuda is None:
        return Probe(False, f"torch {torch.__version__} is built without CUDA", "install a torch with CUDA")
    if torch.cuda.device_count() == 0:
        return Probe(False, "torch sees no CUDA device", "check nvidia-smi and CUDA_VISIBLE_DEVICES")
    if torch.cuda.get_device_capability() < (8, 0):
        return Probe(False, "Triton needs compute capability 8.0 or later", "use muladd-cuda on this device")
    return Probe(True)


def register(target: torch.library.Library) -> None:
    """Put the kernels into PyTorch's dispatcher."""
    from opwheel.dispatch import implement, overloads_of

    from .kernels import launch

    implement(target, overloads_of(target).values(), "cpu" if IS_INTERPRETED else "cuda", launch)


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="triton",
        device_type="cpu" if IS_INTERPRETED else "cuda",
        dispatch_key="CPU" if IS_INTERPRETED else "CUDA",
        register=register,
        probe=probe,
        requires=["torch>=2.10", "triton>=3.4"],
    )
