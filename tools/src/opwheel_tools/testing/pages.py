"""Arguments of a CPU kernel next to inaccessible pages: a kernel that reads there ends the process.

:mod:`.guarded_memory` sees writes alone. Here a tensor's memory ends where such a page begins, or begins where one
ends, so that one byte too many is enough.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from typing import Any

import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.overload import Overload
from torch import Tensor
from torch.utils import _pytree as pytree

from . import samples as made
from .checks import Samples, declared

_LENGTHS = (1, 16, 33, 513)  # of rows: around vectors, cache lines and blocks of the SDK's loops
_STEPS = (1, 2, 3)
_CPU = torch.device("cpu")


def next_to_pages(overload: Overload, dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    """Values of all arguments: every sample and, of an element-wise operator, rows of several lengths and strides.

    Args:
        overload: whose arguments.
        dtype: of the samples.
    """
    for given in _arguments(overload, dtype):
        for at_end in (True, False):
            yield pytree.tree_map(lambda value, at_end=at_end: _beside_page(value, at_end), given)


def _arguments(overload: Overload, dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    for index in range(len(declared(overload, dtype, _CPU))):
        yield Samples(overload, index, dtype, _CPU).values()
    if isinstance(overload.operator.rule, Elementwise):
        for length in _LENGTHS:
            row = overload.bind(made.arguments(overload, (length,), dtype, _CPU), {})
            for step in _STEPS:
                yield pytree.tree_map(lambda value, step=step: _with_step(value, step), row)


def _with_step(value: Any, step: int) -> Any:
    """The same elements, ``step`` apart."""
    if not isinstance(value, Tensor):
        return value
    return value.new_empty(step * value.numel())[::step].copy_(value)


def _beside_page(value: Any, at_end: bool) -> Any:
    """A copy with the same strides, whose last element is followed, or whose first is preceded, by such a page."""
    if not isinstance(value, Tensor) or value.numel() == 0:
        return value
    count = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    size = count * value.element_size()
    pages = -(-size // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)  # belongs to the tensor
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    forbidden = first + pages * mmap.PAGESIZE if at_end else first
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(forbidden), mmap.PAGESIZE, 0) != 0:
        sys.exit("a page cannot be protected")  # not an exception: callers leave those to other tests
    offset = pages * mmap.PAGESIZE - size if at_end else mmap.PAGESIZE
    room = torch.frombuffer(memory, dtype=value.dtype, count=count, offset=offset)
    room.copy_(value.as_strided((count,), (1,)))  # elements that are repeated, and what is between elements, as well
    return room.as_strided(value.shape, value.stride())
