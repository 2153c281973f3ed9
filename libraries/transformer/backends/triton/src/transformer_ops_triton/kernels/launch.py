"""How kernels are started: sizes of blocks, the current device, the interpreter's lock."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_BLOCK = 8192  # elements of a row in registers at once

_interpreter = threading.Lock()  # it keeps the number of the running program in a global variable


def launch(kernel: Any, programs: int, like: Tensor, *arguments: Any, **constants: Any) -> None:
    """Start so many programs of a kernel on the device of ``like``; nothing if there are none."""
    if programs > 0:
        with _on(like.device):
            kernel[(programs,)](*arguments, **constants)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    if device.type == "cpu":
        return _interpreter
    guard: AbstractContextManager[Any] = torch.get_device_module(device).device(device)
    return guard


def block_of(length: int, limit: int = MAX_BLOCK) -> dict[str, int]:
    """BLOCK for rows of this length, a power of two, and the number of warps for it."""
    block = min(triton.next_power_of_2(max(length, 1)), limit)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 512))}


def compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """What a kernel computes in: float64 for float64, else float32."""
    return tl.float64 if dtype is torch.float64 else tl.float32
