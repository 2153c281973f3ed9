"""May an output be written while the inputs are still being read? The twin of ``opwheel/overlap.h`` in the C++ SDK."""

from __future__ import annotations

import enum
import math

from torch import Tensor


class Overlap(enum.Enum):
    """How an output lies to an input in memory."""

    NONE = enum.auto()
    SAME_ELEMENTS = enum.auto()
    PARTIAL = enum.auto()
    UNKNOWN = enum.auto()  # PyTorch does not classify it: compute elsewhere, then copy


def may_overlap_itself(tensor: Tensor) -> bool:
    """Whether some element is reached by two different indices.

    Exact but for tensors of which three and more dimensions reach into each other, which count as overlapping.
    """
    if tensor.numel() == 0:
        return False
    dims = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    # A step that is longer than all others together leads to where none of them do.
    while len(dims) > 1 and dims[-1][0] > sum(stride * (size - 1) for stride, size in dims[:-1]):
        dims.pop()
    if len(dims) <= 1:
        return bool(dims) and dims[0][0] == 0
    if len(dims) > 2:
        return True
    (stride, size), (other_stride, other_size) = dims
    # m steps of one are n steps of the other for the first time at their least common multiple.
    divisor = math.gcd(stride, other_stride)
    return divisor == 0 or bool(other_stride // divisor < size and stride // divisor < other_size)


def is_dense(tensor: Tensor) -> bool:
    """Whether every element has a place of its own and there are no gaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return tensor.numel() == 0
        expected = expected * size
    return True


def overlap(output: Tensor, given: Tensor) -> Overlap:
    """How ``output`` lies to ``given``, an input before it is broadcast."""
    if output.numel() == 0 or given.numel() == 0:
        return Overlap.NONE
    begin, end = _byte_range(output)
    other_begin, other_end = _byte_range(given)
    if end <= other_begin or other_end <= begin:
        return Overlap.NONE
    if _walk(output) == _walk(given):
        return Overlap.SAME_ELEMENTS
    if _interleaved(output, given):
        return Overlap.NONE
    return Overlap.PARTIAL if is_dense(output) and is_dense(given) else Overlap.UNKNOWN


def _walk(tensor: Tensor) -> tuple[object, ...]:
    steps = tuple(step for step in zip(tensor.shape, tensor.stride(), strict=True) if step[0] != 1)
    return tensor.data_ptr(), tensor.dtype, steps


def _byte_range(tensor: Tensor) -> tuple[int, int]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def _interleaved(output: Tensor, given: Tensor) -> bool:
    """Both only touch addresses start + k * divisor: x[::2] and x[1::2] never meet."""
    divisor = math.gcd(
        *(
            stride * tensor.element_size()
            for tensor in (output, given)
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            if size > 1
        )
    )
    if divisor == 0:
        return False
    phase = (given.data_ptr() - output.data_ptr()) % divisor
    return phase >= output.element_size() and divisor - phase >= given.element_size()
