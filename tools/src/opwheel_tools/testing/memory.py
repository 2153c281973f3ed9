"""Tensors whose memory is unusual, made from ordinary values: what a kernel must read, write or refuse all the same."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.utils.dlpack
from opwheel._torch import private
from torch import Tensor

_SPARE = 3  # elements in front of the tensor


def _in(memory: Tensor, values: Tensor) -> Tensor:
    """Copy the values to the end of flat memory, behind the spare elements."""
    return memory[_SPARE:].view(values.shape).copy_(values)


def _count(values: Tensor) -> int:
    return values.numel() + _SPARE


def _with_offset(values: Tensor) -> Tensor:
    return _in(values.new_zeros(_count(values)), values)


def _numpy(values: Tensor) -> Tensor:
    import numpy as np

    memory = np.zeros(_count(values) * values.element_size(), dtype=np.uint8)
    return _in(torch.from_numpy(memory).view(values.dtype), values)


def _buffer(values: Tensor) -> Tensor:
    memory = bytearray(_count(values) * values.element_size())
    return _in(torch.frombuffer(memory, dtype=values.dtype), values)


def _mapped(values: Tensor) -> Tensor:
    memory = mmap.mmap(-1, _count(values) * values.element_size())
    return _in(torch.frombuffer(memory, dtype=values.dtype), values)


def _shared_file(values: Tensor) -> Tensor:
    with tempfile.TemporaryDirectory() as folder:  # the mapping outlives the file
        path = str(Path(folder) / "memory")
        return _in(torch.from_file(path, shared=True, size=_count(values), dtype=values.dtype), values)


def _dlpack(values: Tensor) -> Tensor:
    return _in(torch.utils.dlpack.from_dlpack(values.new_zeros(_count(values))), values)


def _functional(values: Tensor) -> Tensor:
    return private.functional_wrapper(values.clone())


def _functional_with_offset(values: Tensor) -> Tensor:
    return private.functional_wrapper(_with_offset(values))


def _freed(values: Tensor) -> Tensor:
    tensor = values.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def _freed_with_offset(values: Tensor) -> Tensor:
    tensor = _with_offset(values)
    tensor.untyped_storage().resize_(0)
    return tensor


# Copies of tensors on a CPU in memory of somebody else, which PyTorch cannot make larger.
FOREIGN: dict[str, Callable[[Tensor], Tensor]] = {
    "numpy": _numpy,
    "frombuffer": _buffer,
    "mmap": _mapped,
    "shared file": _shared_file,
    "dlpack": _dlpack,
}
# Wrappers that have no memory themselves; plain() gives what they stand for.
FUNCTIONAL: dict[str, Callable[[Tensor], Tensor]] = {
    "functional": _functional,
    "functional with an offset": _functional_with_offset,
}
# Every other copy with the values that the original had.
READABLE: dict[str, Callable[[Tensor], Tensor]] = {"with an offset": _with_offset, **FOREIGN, **FUNCTIONAL}
# Tensors of the original's shape whose memory was freed: whoever reads or writes an element of theirs must refuse.
FREED: dict[str, Callable[[Tensor], Tensor]] = {"freed": _freed, "freed with an offset": _freed_with_offset}
KINDS = READABLE | FREED


def make(kind: str, values: Tensor) -> Tensor:
    """A tensor of that kind from ``values``; skips the test where there is none of it."""
    if kind in FOREIGN and values.device.type != "cpu":
        pytest.skip(f"memory of the kind {kind!r} is the host's")
    if kind == "numpy":
        pytest.importorskip("numpy")
    return KINDS[kind](values)


def plain(tensor: Tensor) -> Tensor:
    """The tensor itself, or what a functional wrapper stands for."""
    return private.behind_functional_wrapper(tensor)
