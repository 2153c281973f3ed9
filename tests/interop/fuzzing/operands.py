"""Operands as users have them: every dtype, shapes that broadcast, memory of every kind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# What one value differs from its neighbours by: no narrower dtype can hold it.
_DETAIL = {torch.bfloat16: 0.0, torch.float16: 2.0**-9, torch.float32: 2.0**-14, torch.float64: 2.0**-36}
_GUARD = 8  # elements before and behind, which nobody may write
_GUARD_VALUE = 7.0
_SAME_SIZE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Operand(NamedTuple):
    """One tensor of a call, before it is made."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    memory: str
    requires_grad: bool
    seed: int

    def make(self) -> tuple[Tensor, Tensor]:
        """The tensor, and the whole memory that it lies in: the same ones at each call."""
        tensor, room = MEMORIES[self.memory](_values(self))
        return tensor.detach().requires_grad_(self.requires_grad), room


def _values(operand: Operand) -> Tensor:
    """Numbers of a few bits, so that sums and products are exact, and the detail that a narrower dtype would lose.

    The detail leads away from zero. Otherwise the upper half of a negative number is all ones; read as a number of its
    own ("its bits"), its products are not exact, and a fused multiply-add may differ from ATen's two steps in the last
    place. In the wider memory that it is written to, the last place of an upper half is no rounding.
    """
    generator = torch.Generator().manual_seed(operand.seed)
    quarters = torch.randint(1, 9, operand.shape, generator=generator, dtype=torch.float64) / 4
    sign = torch.randint(0, 2, operand.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (sign * (quarters + _DETAIL[operand.dtype])).to(operand.dtype)


def _guarded(count: int, dtype: torch.dtype) -> np.ndarray:
    """Memory of NumPy's for so many elements between two guards; NumPy has no bfloat16, hence its bits."""
    room = torch.full((count + 2 * _GUARD,), _GUARD_VALUE, dtype=dtype)
    return room.view(_SAME_SIZE[dtype.itemsize]).numpy().copy()


def _filled(tensor: Tensor, values: Tensor) -> Tensor:
    return tensor.view(values.dtype).view(values.shape).copy_(values)


def _own(values: Tensor) -> tuple[Tensor, Tensor]:
    return values, values


def _offset(values: Tensor) -> tuple[Tensor, Tensor]:
    room = torch.full((values.numel() + 2 * _GUARD,), _GUARD_VALUE, dtype=values.dtype)
    return _filled(room[_GUARD : _GUARD + values.numel()], values), room


def _transposed(values: Tensor) -> tuple[Tensor, Tensor]:
    room = values.permute(list(reversed(range(values.dim())))).contiguous()
    return room.permute(list(reversed(range(values.dim())))), room


def _every_second(values: Tensor) -> tuple[Tensor, Tensor]:
    room = torch.full([size * 2 for size in values.shape], _GUARD_VALUE, dtype=values.dtype)
    return room[tuple(slice(None, None, 2) for _ in values.shape)].copy_(values), room


def _expanded(values: Tensor) -> tuple[Tensor, Tensor]:
    room = values.flatten()[:1].clone()
    return (room.view([1] * values.dim()).expand(values.shape), room) if values.numel() else (values, values)


def _from_numpy(values: Tensor) -> tuple[Tensor, Tensor]:
    array = _guarded(values.numel(), values.dtype)
    part = torch.from_numpy(array[_GUARD : _GUARD + values.numel()])
    return _filled(part, values), torch.from_numpy(array).view(values.dtype)


def _from_dlpack(values: Tensor) -> tuple[Tensor, Tensor]:
    array = _guarded(values.numel(), values.dtype)
    part = torch.from_dlpack(array[_GUARD : _GUARD + values.numel()])
    return _filled(part, values), torch.from_numpy(array).view(values.dtype)


def _from_buffer(values: Tensor) -> tuple[Tensor, Tensor]:
    array = _guarded(max(values.numel(), 1), values.dtype)
    start = _GUARD * values.dtype.itemsize
    part = torch.frombuffer(memoryview(array).cast("B"), dtype=values.dtype, count=max(values.numel(), 1), offset=start)
    return _filled(part[: values.numel()], values), torch.from_numpy(array).view(values.dtype)


# Ways to lie in memory. NumPy's, DLPack's and a buffer's cannot be resized.
MEMORIES = {
    "own": _own,
    "offset": _offset,
    "transposed": _transposed,
    "every second": _every_second,
    "expanded": _expanded,
    "numpy": _from_numpy,
    "dlpack": _from_dlpack,
    "buffer": _from_buffer,
}

# Broadcasting with rows, columns and numbers; sizes of one and zero; more dimensions in the second than in the first.
SHAPES = (
    ((2, 3), (2, 3), (2, 3)),
    ((2, 3), (3,), (2, 1)),
    ((3, 3), (3, 3), (3, 3)),
    ((3,), (3,), (3,)),
    ((2, 3), (), (1, 3)),
    ((), (2, 3), ()),
    ((), (), ()),
    ((), (), (3,)),
    ((2, 1), (1, 1), (2, 1)),
    ((1, 3), (2, 1, 1), (3,)),
    ((0, 3), (1, 3), ()),
)


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*shapes))
