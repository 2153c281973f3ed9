"""Reads the codes in front of a kernel's error messages. ``opwheel/detail/error.h`` in the C++ SDK has the same codes.

Nothing but the codes is looked at, never the words. A call that failed with a code is not made again: it may have
written.
"""

from __future__ import annotations

import re

import torch

from .._torch import private

OUT_OF_MEMORY = "[OPWHEEL:OOM]"
LAUNCH = "[OPWHEEL:LAUNCH]"  # the kernel failed, perhaps after it had written a part of the result

_ANY = "[OPWHEEL:"
# memory_wanted() in opwheel/detail/error.h; csrc/autograd/wanted_memory.h reads the same, and says why both do.
_WANTED = re.compile(r"\(bytes=(\d{1,18}) device=(\w+)((?::\d+)?)\)\s*\Z", re.ASCII)


def has_code(error: BaseException) -> bool:
    """Whether the call that raised it must not be made again."""
    return str(error).startswith(_ANY)


def memory_wanted(error: BaseException) -> tuple[int, str, str] | None:
    """Bytes, device type and index (such as ``":1"``) of memory that a kernel did not get; None for other errors."""
    wanted = _WANTED.search(str(error)) if str(error).startswith(OUT_OF_MEMORY) else None
    return (int(wanted[1]), wanted[2], wanted[3]) if wanted else None


def raise_if_out_of_memory(error: RuntimeError) -> None:
    """Raise PyTorch's own out-of-memory error if the error says that a kernel got no memory.

    C++ code on the stable ABI cannot raise it. So the same allocation is tried here, where PyTorch words the error.

    Raises:
        torch.OutOfMemoryError: on a device without so much free memory.
        RuntimeError: on the CPU, or where the device has failed.
    """
    wanted = memory_wanted(error)
    if wanted:
        count, device, index = wanted
        # A library that was built without the name of its device (OPWHEEL_PRIVATEUSE1_NAME) gives PyTorch's.
        device = private.privateuse1_name() if device == "privateuseone" else device
        torch.empty(count, dtype=torch.uint8, device=device + index)
        # There is memory now: the tensor was one of several, or some memory has become free.
        if device != "cpu":
            raise torch.OutOfMemoryError(f"{device.upper()} out of memory: {error}") from error
