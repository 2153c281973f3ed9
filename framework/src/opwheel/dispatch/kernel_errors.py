"""What a kernel's error means for the call: codes in front of messages, the twin of ``opwheel/error.h`` in the C++ SDK.

Nothing but the codes is looked at. A call that failed with one is not made again: it may have written.
"""

from __future__ import annotations

import re

import torch

from .. import _torch_private as private

OUT_OF_MEMORY = "[OPWHEEL:OOM]"
LAUNCH = "[OPWHEEL:LAUNCH]"  # of the kernel failed, before or after a part of the result was written

_ANY = "[OPWHEEL:"
_WANTED = re.compile(r"\(bytes=(\d+) device=(\w+)((?::\d+)?)\)$")  # memory_wanted() in opwheel/error.h


def has_code(error: BaseException) -> bool:
    """Whether the call that raised it must not be made again."""
    return str(error).startswith(_ANY)


def memory_wanted(error: BaseException) -> tuple[int, str, str] | None:
    """Bytes, device type and index (such as ``":1"``) of memory that a kernel did not get; None for other errors."""
    wanted = _WANTED.search(str(error)) if str(error).startswith(OUT_OF_MEMORY) else None
    return (int(wanted[1]), wanted[2], wanted[3]) if wanted else None


def raise_if_out_of_memory(error: RuntimeError) -> None:
    """Do in Python what a kernel could not do, if the error says that it had no memory: it lacks PyTorch's own error.

    Raises:
        torch.OutOfMemoryError: on a device without so much free memory.
        RuntimeError: on the CPU, or where the device has failed.
    """
    wanted = memory_wanted(error)
    if wanted:
        count, device, index = wanted
        # A library that was built without the name of its device knows it by PyTorch's.
        device = private.privateuse1_name() if device == "privateuseone" else device
        torch.empty(count, dtype=torch.uint8, device=device + index)
        # This one tensor fits: it was one of several, or memory has become free.
        if device != "cpu":
            raise torch.OutOfMemoryError(f"{device.upper()} out of memory: {error}") from error
