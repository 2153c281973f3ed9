"""Makes arguments from those of one call: more rows, wider rows, parts of them, other memory layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .subject import Arguments

LAYOUTS = ("sliced", "offset", "transposed")


class Numbers:
    """Which tensors hold numbers to compute with; the values of others, such as indices, stay as they are."""

    def __init__(self, *, except_for: tuple[str, ...] = ()) -> None:
        self._except_for = except_for

    def varied(self, name: str, tensor: Tensor) -> Tensor:
        """Numbers of about the same size, none of them the same as another; always the same ones."""
        if not tensor.is_floating_point() or tensor.element_size() < 2 or name in self._except_for:
            return tensor
        generator = torch.Generator().manual_seed(tensor.numel())
        factors = torch.rand(tensor.shape, generator=generator, dtype=torch.float32) * 0.5 + 0.75
        return (tensor * factors.to(tensor.device)).to(tensor.dtype)


def resized(arguments: Arguments, dimensions: Mapping[str, int], size: int, numbers: Numbers) -> dict[str, Any]:
    """The arguments with another size of some dimensions: elements are repeated, and varied."""
    changed = {name: _repeated(arguments[name], dim, size) for name, dim in dimensions.items() if name in arguments}
    return {**arguments, **{name: numbers.varied(name, tensor) for name, tensor in changed.items()}}


def widened(arguments: Arguments, size: int, wider: int, numbers: Numbers) -> dict[str, Any]:
    """The arguments with another size of the last dimension of all tensors where it has this size."""
    changed = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.dim() and value.shape[-1] == size:
            changed[name] = numbers.varied(name, _repeated(value, -1, wider))
    return changed


def part(tensors: Arguments, dimensions: Mapping[str, int], start: int, stop: int) -> dict[str, Any]:
    """Those elements along the dimensions, in memory of their own; what has no such dimension is as it was."""
    cut = {
        name: tensors[name].narrow(dim, start, stop - start).clone(memory_format=torch.contiguous_format)
        for name, dim in dimensions.items()
        if name in tensors
    }
    return {**tensors, **cut}


def split_rows(arguments: Arguments, dimensions: Mapping[str, int], leading: tuple[int, ...]) -> dict[str, Any]:
    """The arguments with their rows, up to the named dimension, divided into leading dimensions of these sizes."""
    return {
        **arguments,
        **{name: arguments[name].reshape(*leading, *_own(arguments[name], dim)) for name, dim in dimensions.items()},
    }


def rows_in(arguments: Arguments, dimensions: Mapping[str, int]) -> int | None:
    """How many elements the dimensions have; None where they differ, or nothing has them."""
    sizes = {arguments[name].shape[dim] for name, dim in dimensions.items() if name in arguments}
    return sizes.pop() if len(sizes) == 1 else None


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same numbers, with gaps, an offset, or dimensions that are stored in the opposite order."""
    view = room_for(tensor, layout)[1]
    return view.copy_(tensor)


def room_for(tensor: Tensor, layout: str, fill: Any = 0) -> tuple[Tensor, Tensor]:
    """Memory for a tensor in a layout, and a view of it, of the tensor's shape."""
    options: Any = {"dtype": tensor.dtype, "device": tensor.device}
    if layout == "offset":
        room = torch.full((tensor.numel() + 6,), fill, **options)
        return room, room[3 : 3 + tensor.numel()].view(tensor.shape)
    if layout == "sliced":
        room = torch.full([size * 2 + 1 for size in tensor.shape], fill, **options)
        return room, room[tuple(slice(1, None, 2) for _ in tensor.shape)] if tensor.dim() else room
    room = torch.full(list(reversed(tensor.shape)), fill, **options)
    return room, room.permute(tuple(reversed(range(room.dim()))))


def divisions(rows: int) -> Iterator[tuple[int, ...]]:
    """Sizes of leading dimensions that have as many rows."""
    yield from ((rows,), (1, rows), (rows, 1))
    yield from ((few, rows // few) for few in range(2, rows) if rows % few == 0)


def _own(tensor: Tensor, dim: int) -> tuple[int, ...]:
    return tuple(tensor.shape[tensor.dim() + dim + 1 :])


def _repeated(tensor: Tensor, dim: int, size: int) -> Tensor:
    index = torch.arange(size, device=tensor.device) % tensor.shape[dim]
    return tensor.index_select(dim, index)
