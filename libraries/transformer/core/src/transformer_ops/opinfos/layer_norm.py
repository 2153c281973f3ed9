"""Calls of layer normalisation for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

from .tensors import SHAPES, measured, randn, swept


def _pytorchs(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in SHAPES:
        yield Sample(make(*shape), make(shape[-1]), make(shape[-1]))
    yield Sample(make(4, 16))
    yield Sample(make(4, 16), make(16))
    yield Sample(make(4, 16), None, make(16), 1e-3)


def _backward_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in SHAPES[:3]:
        yield Sample(make(*shape), make(*shape), make(shape[-1]), 1e-5)
    yield Sample(make(3, 8), make(3, 8), None, 1e-5)


def _errors(device: str) -> Iterator[ErrorSample]:
    x = torch.ones(3, 4, device=device)
    yield ErrorSample(Sample(x, torch.ones(5, device=device)), RuntimeError)
    yield ErrorSample(Sample(x, None, torch.ones(3, device=device)), RuntimeError)


INFOS = {
    "layer_norm": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=measured(1, 2),
        swept=swept("layer_norm", _pytorchs, 1, 2),
        baselines={"F.layer_norm": _pytorchs},
    ),
    "layer_norm_backward": OpInfo(samples=_backward_samples),
}
