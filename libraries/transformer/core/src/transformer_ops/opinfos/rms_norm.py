"""Calls of root mean square normalisation for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

from ..operators.rms_norm import MODES
from .tensors import SHAPES, measured, randn, swept


def _pytorchs(
    x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, offset: float = 0.0, casting_mode: str = "llama"
) -> Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight if weight is None else weight + offset, eps)


def _pytorchs_of_sum(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return _pytorchs(total, weight, eps, offset, casting_mode), total


def _rms_norm_samples(device: str, dtype: torch.dtype, requires_grad: bool, *, inputs: int = 1) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in SHAPES:
        yield Sample(*(make(*shape) for _ in range(inputs)), make(shape[-1]))
    rows = [make(4, 16) for _ in range(inputs)]
    yield Sample(*rows)
    for mode in MODES:
        yield Sample(*rows, make(16), 1e-5, 1.0, mode)


def _backward_samples(device: str, dtype: torch.dtype, requires_grad: bool, *, inputs: int = 2) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in SHAPES[:3]:
        yield Sample(*(make(*shape) for _ in range(inputs)), make(shape[-1]), 1e-6, 0.0, "llama")
    yield Sample(*(make(3, 8) for _ in range(inputs)), None, 1e-6, 1.0, "gemma")
    yield Sample(*(make(3, 8) for _ in range(inputs)), make(8), 1e-6, 1.0, "gemma")


def _rms_norm_errors(device: str) -> Iterator[ErrorSample]:
    x = torch.ones(3, 4, device=device)
    yield ErrorSample(Sample(x, torch.ones(5, device=device)), RuntimeError)
    yield ErrorSample(Sample(x, torch.ones(4, device=device), 1e-6, 0.0, "qwen"), (RuntimeError, ValueError))


def _in_place_errors(device: str) -> Iterator[ErrorSample]:
    x = torch.ones(3, 4, device=device)
    yield ErrorSample(Sample(x, x), RuntimeError, "'residual' shares memory with 'x'")


INFOS = {
    "rms_norm": OpInfo(
        samples=_rms_norm_samples,
        errors=_rms_norm_errors,
        measured=measured(1, 1, large=True),
        swept=swept("rms_norm", _pytorchs, 1, 1),
        baselines={"F.rms_norm": _pytorchs},
    ),
    "rms_norm_backward": OpInfo(samples=_backward_samples),
    "fused_add_rms_norm": OpInfo(
        samples=partial(_rms_norm_samples, inputs=2),
        measured=measured(2, 1),
        swept=swept("fused_add_rms_norm", _pytorchs_of_sum, 2, 1),
        baselines={"F.rms_norm": _pytorchs_of_sum},
    ),
    "fused_add_rms_norm_": OpInfo(
        samples=partial(_rms_norm_samples, inputs=2),
        errors=_in_place_errors,
    ),
    "fused_add_rms_norm_backward": OpInfo(samples=partial(_backward_samples, inputs=3)),
}
