"""Tensors for samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from opwheel_tools import Sample
from opwheel_tools.bench import machine
from torch import Tensor

import transformer_ops

SHAPES = ((3, 8), (2, 3, 5), (7,), (0, 4), (2, 100))
"""Of inputs whose last dimension is a row: one, several and no leading dimensions, no rows, more than a register."""


Make = Callable[[int, int], Tensor]
"""Makes an operand of so many rows of a width, in the dtype and layout that a sweep measures."""
Calls = tuple[Callable[[], object], Callable[[], object]]
"""One of an operator and one of a baseline, without arguments."""


def swept(
    operator: str, baseline: Callable[..., object], rows: int = 1, vectors: int = 0
) -> Callable[[Make, int, int], Calls]:
    """Calls of an operator and a baseline, of so many inputs of rows, and then so many contiguous ones of a width."""

    def make_calls(make: Make, height: int, width: int) -> Calls:
        inputs = [make(height, width) for _ in range(rows)]
        inputs += [torch.rand(width).to(inputs[0].dtype) for _ in range(vectors)]
        return partial(getattr(transformer_ops, operator), *inputs), partial(baseline, *inputs)

    return make_calls


def randn(*shape: int, device: str, dtype: torch.dtype, requires_grad: bool = False) -> Tensor:
    """Normal numbers, for a leaf of the graph."""
    return torch.randn(shape, device=device, dtype=dtype, requires_grad=requires_grad)


MARGINS = (8.0, 16.0, 20.0, 30.0)
"""By how much a confident row's largest element is above the others: its softmax is 1 but for 2^-11 to 2^-43 of it."""


def confident_rows(length: int, *, device: str, dtype: torch.dtype, requires_grad: bool = False) -> Tensor:
    """Rows in which what is approximated cancels, a leaf of the graph.

    Of row ``i`` element ``i`` is larger by ``MARGINS[i]``; the next row is saturated, and the last one nearly equal.
    """
    x = torch.linspace(-1, 1, length, dtype=torch.float64).repeat(len(MARGINS) + 2, 1) / 4
    for i, margin in enumerate((*MARGINS, 200.0)):
        x[i, i] += margin
    x[-1] = 2 + x[-1] / 64
    return x.to(device, dtype).requires_grad_(requires_grad)


def rotations(*shape: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Tables of a rotary embedding: cosines and sines, so that rows keep their length."""
    angles = torch.randn(shape, device=device)
    return angles.cos().to(dtype), angles.sin().to(dtype)


MEASURED = ((4096, 2048), (512, 4096))
"""Of inputs whose last dimension is a row, in benchmarks: a model's, and within the caches."""


def beyond_caches(dtype: torch.dtype) -> tuple[int, int]:
    """The same, of at least 2^26 elements, and of more memory than this machine's last-level caches have.

    Of less, a part is in the cache from one call to the next, and which one depends on what is measured beside it.
    """
    caches = machine.last_level_caches()
    rows, length = 32768, 2048
    while rows * length * dtype.itemsize <= caches:
        rows *= 2
    return rows, length


def measured(
    rows: int, vectors: int = 0, *, large: bool = False
) -> Callable[[str, torch.dtype, bool], Iterator[Sample]]:
    """Calls of the measured sizes, with so many inputs of rows, and then so many of a row's length.

    ``large``: of rows beyond the caches as well, without gradients, which shows how much of the memory's bandwidth is
    used.
    """

    def make(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
        for shape in (*MEASURED, beyond_caches(dtype)) if large and not requires_grad else MEASURED:
            shapes = [shape] * rows + [shape[-1:]] * vectors
            yield Sample(*(randn(*one, device=device, dtype=dtype, requires_grad=requires_grad) for one in shapes))

    return make
