"""What several operators check and prepare alike; each error names the argument, and what was given and expected."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from opwheel.dispatch.overlap import Overlap, may_overlap_itself, overlap
from opwheel.dispatch.tensor_iterator import is_non_overlapping_and_dense
from torch import Tensor

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def refuse(name: str, problem: str) -> NoReturn:
    """Refuse an argument.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"argument '{name}' {problem}")


def check_dtype(x: Tensor, name: str, *expected: torch.dtype) -> None:
    """Check that the dtype is one of these."""
    if x.dtype not in expected:
        supported = f"{'one of ' * (len(expected) > 1)}{', '.join(map(str, expected))}"
        refuse(name, f"is {x.dtype}, expected {supported}; convert it with .to(...)")


def check_shape(x: Tensor, name: str, *expected: int) -> None:
    """Check the shape; -1 stands for any size."""
    fits = x.dim() == len(expected) and all(e in (-1, s) for s, e in zip(x.shape, expected, strict=True))
    if not fits:
        refuse(name, f"has shape {tuple(x.shape)}, expected {expected}; pass a tensor of that shape")


def check_same(x: Tensor, name: str, other: Tensor, other_name: str) -> None:
    """Check that dtype and device are those of another argument."""
    if x.dtype != other.dtype:
        refuse(name, f"is {x.dtype}, but '{other_name}' is {other.dtype}; convert one of them with .to(...)")
    check_device(x, name, other, other_name)


def check_device(x: Tensor, name: str, other: Tensor, other_name: str) -> None:
    """Check that the device is that of another argument."""
    if x.device != other.device:
        refuse(name, f"is on {x.device}, but '{other_name}' is on {other.device}; move it with .to(...)")


def check_rows(x: Tensor, name: str) -> None:
    """Check that it has rows of floating-point numbers."""
    check_dtype(x, name, *FLOATING)
    if x.dim() < 1:
        refuse(name, "has 0 dimensions, expected at least 1; reshape it")


def check_like(x: Tensor, name: str, other: Tensor, other_name: str) -> None:
    """Check that shape, dtype and device are those of another argument."""
    if x.shape != other.shape:
        refuse(
            name,
            f"has shape {tuple(x.shape)}, but '{other_name}' has {tuple(other.shape)}; pass a tensor of that shape",
        )
    check_same(x, name, other, other_name)


def vector(x: Tensor | None, name: str, other: Tensor, other_name: str) -> Tensor | None:
    """The argument, contiguous, after a check that it is as long as the rows of another, of its dtype and device."""
    if x is None:
        return None
    check_same(x, name, other, other_name)
    check_shape(x, name, other.shape[-1])
    return x.contiguous()


def check_apart(a: Tensor, name: str, b: Tensor, other_name: str, why: str = "both are written to") -> None:
    """Refuse two tensors, of which one or both are written to, that may share memory."""
    if overlap(a, b) is not Overlap.NONE:
        refuse(name, f"shares memory with '{other_name}', and {why}; clone one of them first")


def check_written(written: Tensor, name: str, **read: Tensor | None) -> None:
    """Refuse what is written to if its elements share places in memory, with each other or with what is read."""
    if may_overlap_itself(written):
        raise RuntimeError(
            f"several elements of argument '{name}' share one place in memory (an expanded or overlapping view); pass "
            "a tensor of its own, for instance its .clone()"
        )
    for other_name, other in read.items():
        if other is not None:
            check_apart(written, name, other, other_name, "it is read while the other is written to")


def check_out(out: Tensor, x: Tensor, x_name: str, **others: Tensor | None) -> None:
    """Check the tensor that a result of the shape of ``x`` goes into; it must not be the memory of another argument."""
    check_like(out, "out", x, x_name)
    check_written(out, "out", **{x_name: x}, **others)


def write_back(rows: Tensor, tensor: Tensor) -> None:
    """Copy what was written, where :func:`rows_of` had to make a copy of the tensor."""
    if rows.data_ptr() != tensor.data_ptr():
        tensor.copy_(rows.view(tensor.shape))


def check_on_device(fits: Tensor, message: str) -> None:
    """Check one truth without waiting for the device: there it is an assertion, as in PyTorch's own."""
    torch._assert_async(fits, message)


def check_indices(index: Tensor, name: str, limit: int, what: str, *, except_for: int | None = None) -> None:
    """Check that 0 <= index < limit, on the device.

    PyTorch's builds for ROCm leave it out: kernels read and write nothing at other indices.
    """
    fits = (index >= 0) & (index < limit)
    if except_for is not None:
        fits |= index == except_for
    check_on_device(fits.all(), f"argument '{name}' has an element that is no {what}: there are {limit}")


def check_position_ids(ids: Tensor, q: Tensor, batches: int, positions: int, limit: int, of: str) -> None:
    """Check the positions of queries, each one of the ``limit`` that argument ``of`` has."""
    check_dtype(ids, "position_ids", torch.int64)
    check_device(ids, "position_ids", q, "q")
    if ids.dim() not in (1, 2) or ids.shape[-1] != positions or ids.shape[:-1].numel() not in (1, batches):
        refuse("position_ids", f"has shape {tuple(ids.shape)}, expected ({batches} or 1, {positions})")
    check_indices(ids, "position_ids", limit, f"position of '{of}'")


def rows_of(x: Tensor) -> Tensor:
    """``(rows, length)``, the elements of a row one after the other: a view where that is possible."""
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return flat if flat.stride(1) == 1 or flat.shape[1] <= 1 else flat.contiguous()


def share_strides(first: Tensor, *others: Tensor) -> bool:
    """Whether tensors have the same strides, which leave no gaps and are not those of contiguous ones.

    Results of operators with ``memory_format=torch.preserve_format`` then have them as well.
    """
    strides = first.stride()
    if first.is_contiguous() or any(one.stride() != strides for one in others):
        return False
    return is_non_overlapping_and_dense(first.shape, strides)


def in_memory_order(x: Tensor) -> Tensor:
    """``(rows, length)`` of a tensor that shares its strides, as if it were contiguous."""
    return x.as_strided((x.numel() // x.shape[-1], x.shape[-1]), (x.shape[-1], 1))


def with_adjacent_elements(x: Tensor) -> Tensor:
    """The tensor, its rows in one piece each, or a copy: kernels are compiled for fewer layouts, and read faster."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def outer_strides(x: Tensor) -> tuple[int, ...]:
    """Those of all dimensions but the last; 0, for which kernels are not compiled apart, of a dimension of size 1."""
    return tuple(0 if size == 1 else step for size, step in zip(x.shape[:-1], x.stride()[:-1], strict=True))


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that is computed in: float64 for float64, else float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32
