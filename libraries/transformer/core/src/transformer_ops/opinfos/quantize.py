"""Calls of quantisation for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample, Tolerance

from .tensors import SHAPES, randn


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for shape in (*SHAPES, (2, 0)):
        yield Sample(randn(*shape, device=device, dtype=dtype, requires_grad=requires_grad))


def _dequantize_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    q = torch.randint(-127, 128, (4, 16), device=device, dtype=torch.int8)
    scale = torch.rand(4, device=device).requires_grad_(requires_grad)
    yield Sample(q, scale)
    yield Sample(q, scale, dtype=dtype)


def _errors(device: str) -> Iterator[ErrorSample]:
    q = torch.ones(2, 3, dtype=torch.int8, device=device)
    yield ErrorSample(Sample(q, torch.ones(3, device=device)), RuntimeError)


INFOS = {
    "quantize_rowwise": OpInfo(samples=_samples, tolerance={torch.int8: Tolerance(0, 1)}),
    "dequantize_rowwise": OpInfo(
        samples=_dequantize_samples,
        errors=_errors,
    ),
}
