"""Detects out-of-bounds writes of kernels with guard bytes around the memory that PyTorch allocates on a CPU.

The allocator is in ``guarded_memory.cpp``, which is compiled for the installed PyTorch when it is first needed. It sees
every allocation, also those by ``aoti_torch_empty_strided`` and by PyTorch's own kernels, which do not go through the
dispatcher. A guard has 256 bytes; a write further away is not seen, and neither is a read, but for what it makes of the
results where the guards are of nan.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ..compiled import CompileError, open_compiled

PATTERN = 0xA5  # of guards whose numbers are small
NAN = 0xFF  # nan in every floating-point dtype, -1 in integers
LARGE = 0x7B  # 1e36 in float32, 61,000 in float16

_PLACES = {0: "", 1: "in front of", 2: "behind", 3: "in front of and behind"}


class Guards:
    """What was written out of the bounds of memory that was allocated under :func:`guarded_memory`.

    Attributes:
        anywhere: like :meth:`damage`, of all that memory, that of freed tensors included; known at the end.
    """

    def __init__(self) -> None:
        self.anywhere = ""

    def damage(self, tensor: Tensor) -> str:
        """Where a tensor was written out of bounds: ``"in front of"``, ``"behind"``, or both of it; else empty."""
        return _PLACES.get(_library().opwheel_guards_damage(tensor.untyped_storage().data_ptr()), "")


@contextmanager
def guarded_memory(byte: int = PATTERN, *, is_filled: bool = False) -> Iterator[Guards]:
    """Let all memory that PyTorch allocates on a CPU lie between guards, in every thread.

    Args:
        byte: of which the guards are.
        is_filled: whether new memory is filled with that byte, too.

    Raises:
        RuntimeError: the allocator cannot be compiled (:func:`why_not`), the guards are there already, or somebody has
            replaced PyTorch's allocator by one that stays.
    """
    if reason := why_not():
        raise RuntimeError(f"memory cannot be guarded: {reason}")
    guards = Guards()
    if not _library().opwheel_guards_begin(byte, is_filled):
        raise RuntimeError("memory cannot be guarded: it is already, or PyTorch's CPU allocator cannot be replaced")
    try:
        yield guards
    finally:
        guards.anywhere = _PLACES[_library().opwheel_guards_end()]


def why_not() -> str:
    """Why memory cannot be guarded in this environment; empty if it can."""
    try:
        _library()
    except CompileError as error:
        return str(error)
    return ""


@cache
def _library() -> ctypes.CDLL:
    folder = Path(torch.__file__).parent
    flags = ["-std=c++20", "-O2", "-DNDEBUG", f"-isystem{folder / 'include'}", f"-L{folder / 'lib'}", "-lc10"]
    library = open_compiled(Path(__file__).with_name("guarded_memory.cpp"), flags, key=torch.__version__)
    library.opwheel_guards_begin.restype = ctypes.c_bool
    library.opwheel_guards_begin.argtypes = [ctypes.c_ubyte, ctypes.c_bool]
    library.opwheel_guards_damage.argtypes = [ctypes.c_void_p]
    return library
