"""The device ``toy``: ``torch.ones(3, device="toy")``. Importing torch imports this, through its entry point."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import torch

torch.ops.load_library(next(Path(__file__).parent.glob("_device*.so")))
torch.utils.rename_privateuse1_backend("toy")
torch._register_device_module("toy", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend()


def autoload() -> None:
    """Called by ``import torch``, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0; importing this module has done it all."""


def is_available() -> bool:
    """There always is one: it is made of the host's memory."""
    return True


def is_initialized() -> bool:
    """There is nothing to initialise."""
    return True


def device_count() -> int:
    """One device."""
    return 1


def current_device() -> int:
    """The only one."""
    return 0


def set_device(_device: object) -> None:
    """There is only one."""


device = contextlib.nullcontext  # `with torch.toy.device(0):` changes nothing


def synchronize(_device: object = None) -> None:
    """Everything is done when a call returns."""


def _is_in_bad_fork() -> bool:
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What torch.autocast may choose."""
    return [torch.float16, torch.bfloat16]


# Random numbers come from the CPU.


def manual_seed_all(seed: int) -> None:
    """Called by torch.manual_seed, which has seeded the CPU."""


def get_rng_state(_device: object = None) -> torch.Tensor:
    """The state of the CPU's generator."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, _device: object = None) -> None:
    """Set that of the CPU's generator."""
    torch.set_rng_state(state)
