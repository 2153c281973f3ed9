"""What the backends of this wheel have in common."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING

from opwheel import Backend, Probe
from opwheel.registry.values import INVARIANCES

if TYPE_CHECKING:
    import torch

# No GPU has proved yet what the library claims about bits.
UNPROVED = {"*": INVARIANCES}


def describe(name: str, device_type: str, dispatch_key: str) -> Backend:
    """The backend for one device type."""
    return Backend(
        name=name,
        device_type=device_type,
        dispatch_key=dispatch_key,
        register=partial(_register, device_type),
        probe=partial(_probe, device_type),
        not_invariant={} if device_type == "cpu" else UNPROVED,
        requires=["torch>=2.10"],  # Triton's distribution has a name of its own for each of PyTorch's builds
    )


def _probe(device_type: str) -> Probe:
    """Whether there is a device for the kernels. Does not import Triton, which takes a second."""
    import torch

    if importlib.util.find_spec("triton") is None:
        fix = "install PyTorch's build for your GPU, whose wheel requires its own Triton"
        return Probe(False, "Triton is not installed", fix)
    if device_type == "cpu":
        return Probe(True, "Triton's interpreter runs the kernels on the CPU")
    if not torch.get_device_module(device_type).is_available():
        return Probe(False, f"torch {torch.__version__} finds no {device_type} device", "check driver and torch build")
    return Probe(True)


def _register(device_type: str, target: torch.library.Library) -> None:
    """Put the kernels into PyTorch's dispatcher."""
    from .kernels import register

    register(target, device_type)
