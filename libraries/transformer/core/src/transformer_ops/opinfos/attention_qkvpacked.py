"""Calls of attention of packed queries, keys and values for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

from ..operators.attention_qkvpacked import ATTENTION_QKVPACKED_TRAINING, of_parts
from .attention import BACKWARD_TOLERANCE, TOLERANCE, sdpa_of_rows
from .tensors import randn, rotations

_Call = tuple[Tensor, bool, float | None, Tensor | None, Tensor | None]


def _arguments(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[_Call]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    yield make(2, 3, 3, 2, 5), True, None, None, None
    cos, sin = rotations(34, 2, device=device, dtype=dtype)
    yield make(1, 34, 3, 1, 2), False, 0.5, cos, sin


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in _arguments(device, dtype, requires_grad):
        yield Sample(*arguments)


def _backward_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in _arguments(device, dtype, requires_grad):
        with torch.no_grad():
            y, lse = ATTENTION_QKVPACKED_TRAINING.reference(*arguments)
        kept = (y.contiguous().requires_grad_(requires_grad), lse.requires_grad_(requires_grad))
        grad_output = randn(*y.shape, device=device, dtype=dtype, requires_grad=requires_grad)
        yield Sample(grad_output, arguments[0], *kept, *arguments[1:])


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    yield Sample(randn(16, 256, 3, 4, 64, device=device, dtype=dtype, requires_grad=requires_grad), True)


def _errors(device: str) -> Iterator[ErrorSample]:
    qkv = torch.ones(2, 4, 3, 3, 8, device=device)
    table = torch.ones(4, 8, device=device)
    yield ErrorSample(Sample(qkv[:, :, 0]), RuntimeError)
    yield ErrorSample(Sample(qkv[:, :, :2]), RuntimeError)
    yield ErrorSample(Sample(qkv, False, None, table, None), RuntimeError)
    yield ErrorSample(Sample(qkv, False, None, table[:3], table[:3]), RuntimeError)


INFOS = {
    "attention_qkvpacked": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=_measured,
        baselines={"F.scaled_dot_product_attention": of_parts(sdpa_of_rows)},
        tolerance=TOLERANCE,
    ),
    "attention_qkvpacked_training": OpInfo(samples=_samples, tolerance=TOLERANCE),
    "attention_qkvpacked_backward": OpInfo(samples=_backward_samples, tolerance=BACKWARD_TOLERANCE),
}
