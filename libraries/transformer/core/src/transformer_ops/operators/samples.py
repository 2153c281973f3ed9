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


def rotations(*shape: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Tables of a rotary embedding: cosines and sines, so that rows keep their length."""
    angles = torch.randn(shape, device=device)
    return angles.cos().to(dtype), angles.sin().to(dtype)


MEASURED = ((4096, 2048), (512, 4096))
"""Of inputs whose last dimension is a row, in benchmarks: a model's, and within the caches."""

BEYOND_CACHES = (32768, 2048)
"""The same, of 128 MiB in bfloat16: nothing of it is in a cache of any processor from one call to the next."""


def measured(
    rows: int, vectors: int = 0, *, beyond_caches: bool = False
) -> Callable[[str, torch.dtype, bool], Iterator[Sample]]:
    """Calls of the measured sizes, with so many inputs of rows, and then so many of a row's length.

    ``beyond_caches``: of that size as well, without gradients, which shows how much of the memory's bandwidth is used.
    """

    def make(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
        for shape in (*MEASURED, BEYOND_CACHES) if beyond_caches and not requires_grad else MEASURED:
            shapes = [shape] * rows + [shape[-1:]] * vectors
            yield Sample(*(randn(*one, device=device, dtype=dtype, requires_grad=requires_grad) for one in shapes))

    return make
