"""Out of memory, in PyTorch's own words: what a kernel's allocation raises crosses the stable ABI as an error code."""

from __future__ import annotations

import re

import torch

# The words of opwheel/tensor.h and opwheel/elementwise_kernels.h.
_FAILED = re.compile(
    r"(could not allocate the result:|could not be resized to) (\d+) elements of torch\.(\w+) on (\w+)((?::\d+)?)"
)


def repeat_allocation(error: RuntimeError) -> None:
    """Do in Python what a kernel could not do, if the error says that it had no memory for its result.

    Raises:
        torch.OutOfMemoryError: on a device without so much free memory.
        RuntimeError: on the CPU, or where the device has failed.
    """
    failed = _FAILED.search(str(error))
    if failed:
        attempt, count, dtype, device, index = failed.groups()
        torch.empty(int(count), dtype=getattr(torch, dtype), device=device + index)
        # This one result fits: it was one of several, or memory has become free. A resize has other reasons to fail.
        if device != "cpu" and "allocate" in attempt:
            raise torch.OutOfMemoryError(f"{device.upper()} out of memory: {error}") from error
