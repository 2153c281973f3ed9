"""Tensors for samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from opwheel.dispatch import Sample
from torch import Tensor

SHAPES = ((3, 8), (2, 3, 5), (7,), (0, 4), (2, 100))
"""Of inputs whose last dimension is a row: one, several and no leading dimensions, no rows, more than a register."""


def wide(tensor: Tensor) -> Tensor:
    """In the dtype that is computed in: float64 for float64, else float32."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def randn(*shape: int, device: str, dtype: torch.dtype, requires_grad: bool = False) -> Tensor:
    """Normal numbers, for a leaf of the graph."""
    return torch.randn(shape, device=device, dtype=dtype, requires_grad=requires_grad)


MEASURED = ((4096, 2048), (512, 4096))
"""Of inputs whose last dimension is a row, in benchmarks: beyond the caches, and within."""


def measured(rows: int, vectors: int = 0) -> Callable[[str, torch.dtype, bool], Iterator[Sample]]:
    """Calls of the measured sizes, with so many inputs of rows, and then so many of a row's length."""

    def make(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
        for shape in MEASURED:
            shapes = [shape] * rows + [shape[-1:]] * vectors
            yield Sample(*(randn(*one, device=device, dtype=dtype, requires_grad=requires_grad) for one in shapes))

    return make
