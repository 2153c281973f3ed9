"""Arguments for operators, made from their schemas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from opwheel.dispatch.overload import Overload
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (2.7, -0.3)  # neither is exact in binary: rounding them too early shows


def numbers(shape: Sequence[int], dtype: torch.dtype, seed: int) -> Tensor:
    """Reproducible values in [-4, 4], none of them near zero, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    magnitude = torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * 3.75 + 0.25
    sign = torch.randint(0, 2, tuple(shape), generator=generator, dtype=torch.float64) * 2 - 1
    return (magnitude * sign).to(dtype)


def _transposed(values: Tensor) -> Tensor:
    dims = tuple(reversed(range(values.dim())))
    return values.permute(dims).contiguous().permute(dims)


def _every_second(values: Tensor) -> Tensor:
    wide = torch.zeros([size * 2 for size in values.shape], dtype=values.dtype, device=values.device)
    view = wide[tuple(slice(None, None, 2) for _ in values.shape)]
    return view.copy_(values)


def _with_offset(values: Tensor) -> Tensor:
    room = torch.zeros(values.numel() + 3, dtype=values.dtype, device=values.device)
    return room[3:].view(values.shape).copy_(values)


def _expanded(values: Tensor) -> Tensor:
    return values[:1].expand(values.shape) if values.dim() and values.shape[0] else values


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values


# Ways to lay the same shape out in memory; "expanded" also repeats values.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda values: values.contiguous(),
    "transposed": _transposed,
    "sliced": _every_second,
    "offset": _with_offset,
    "expanded": _expanded,
    "channels_last": _channels_last,
}


# Other tensors over the memory of one that is overwritten, all of which broadcast to it.
ALIASES: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda target: target,
    "a view": lambda target: target.view_as(target),
    "a column": lambda target: target[:, :1],
    "detached": lambda target: target.detach(),
    "its data": lambda target: target.data,
    "its storage": lambda target: target.new_empty(0).set_(
        target.detach().untyped_storage(), target.storage_offset(), target.shape, target.stride()
    ),
}


def arguments(
    overload: Overload,
    shapes: Sequence[Sequence[int]] | Sequence[int],
    dtype: torch.dtype,
    device: Any,
    *,
    layouts: Sequence[str] = ("contiguous",),
    seed: int = 0,
    requires_grad: bool = False,
) -> tuple[Any, ...]:
    """Positional arguments for a call.

    Args:
        overload: whose schema to follow.
        shapes: one shape for all tensors, or several, used in turn.
        dtype: of all tensors.
        device: of all tensors.
        layouts: names in :data:`LAYOUTS`, used in turn.
        seed: of the values.
        requires_grad: whether the tensors are leaves that require grad.
    """
    count = len(overload.tensor_arguments)
    each = [shapes] * count if not shapes or isinstance(shapes[0], int) else shapes
    layout = itertools.cycle(layouts)
    number = itertools.cycle(NUMBERS)
    shape = itertools.cycle(each)
    args: list[Any] = []
    for position, name in enumerate(overload.arguments):
        if name not in overload.tensor_arguments:
            args.append(next(number))
            continue
        values = numbers(next(shape), dtype, seed + position).to(device)  # type: ignore[arg-type]
        laid_out = LAYOUTS[next(layout)](values)
        args.append(laid_out.detach().requires_grad_(requires_grad))
    return tuple(args)


def broadcasts(count: int) -> Iterator[list[tuple[int, ...]]]:
    """Shapes for ``count`` tensors that broadcast together: scale and shift, rows, columns, scalars, empties."""
    together: list[tuple[tuple[int, ...], ...]] = [
        ((2, 3, 4), (2, 1, 4), (2, 1, 4)),
        ((2, 5, 3, 3), (5, 1, 1), (5, 1, 1)),
        ((3, 4), (4,), (3, 1)),
        ((3, 1), (1, 4), ()),
        ((), (), ()),
        ((), (3, 4), (4,)),
        ((1,), (5,), (1,)),
        ((0,), (1,), (0,)),
        ((2, 0, 3), (1, 3), (2, 1, 1)),
        ((1, 1, 1), (1, 1, 1), (1,)),
        ((7, 1, 5, 1), (1, 3, 1, 2), (3, 5, 2)),
    ]
    for shapes in together:
        for order in sorted(set(itertools.permutations(shapes[:count]))):
            yield list(order)
