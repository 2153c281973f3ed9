"""Calls of cross entropy of a linear layer's results for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

from .tensors import SHAPES, confident_rows, randn


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    target = torch.tensor([1, 0, -100, 4, 2], device=device)
    yield Sample(make(5, 8), make(7, 8), target)
    yield Sample(make(5, 8), make(7, 8), target, make(7), -100, 1e-2, 0.1, "sum")
    yield Sample(make(5, 8), make(7, 8), torch.where(target < 0, 4, target), make(7), 4, 0.0, 0.1, "mean", 3.0)
    sure = confident_rows(40, device=device, dtype=dtype, requires_grad=requires_grad)
    same = torch.eye(40, device=device, dtype=dtype).requires_grad_(requires_grad)  # the logits are the input
    yield Sample(sure, same, torch.arange(len(sure), device=device))


def _of_two_operators(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float = 0.0,
) -> Tensor:
    if lse_square_scale or softcap:
        raise ValueError("without lse_square_scale and softcap")
    logits = torch.nn.functional.linear(input, weight, bias).float()
    return torch.nn.functional.cross_entropy(
        logits, target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
    )


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    rows, width, classes = 512, 512, 32_000
    yield Sample(make(rows, width), make(classes, width), torch.randint(classes, (rows,), device=device))


def _errors(device: str) -> Iterator[ErrorSample]:
    x, weight = torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)
    wrong_target = torch.tensor([0, 4], device=device)
    yield ErrorSample(Sample(x, weight, wrong_target), (RuntimeError, IndexError), by_values=True)
    target = torch.tensor([0, 1], device=device)
    yield ErrorSample(Sample(x, weight, target, None, -100, 0.0, 0.0, "none"), (RuntimeError, ValueError))
    for wrong in ((0.0, -0.5, "mean", 0.0), (0.0, 0.0, "mean", -2.0)):
        yield ErrorSample(Sample(x, weight, target, None, -100, *wrong), RuntimeError)


def _scaled_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, requires_grad=requires_grad)
    computed = torch.float64 if dtype is torch.float64 else torch.float32
    for shape in SHAPES:
        like = randn(*shape, device=device, dtype=dtype)
        yield Sample(make(*shape, dtype=dtype), make(dtype=computed), like)
        if computed != dtype:
            yield Sample(make(*shape, dtype=computed), make(dtype=computed), like)


def _scaled_measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device)
    x = make(32_000, 512, dtype=dtype, requires_grad=requires_grad)
    # The factor is a gradient: it needs one itself for second derivatives alone.
    yield Sample(x, make(dtype=torch.float32), x.detach())


def _scaled_errors(device: str) -> Iterator[ErrorSample]:
    x, factor = torch.ones(2, 3, device=device), torch.ones((), device=device)
    yield ErrorSample(Sample(x, torch.ones(1, device=device), x), RuntimeError)
    yield ErrorSample(Sample(x, factor.double(), x), RuntimeError)
    yield ErrorSample(Sample(x, factor, x[:1]), RuntimeError)
    yield ErrorSample(Sample(x.double(), factor, x), RuntimeError)


INFOS = {
    "fused_linear_cross_entropy": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=_measured,
        baselines={"F.cross_entropy": _of_two_operators},
    ),
    "fused_linear_cross_entropy_training": OpInfo(samples=_samples),
    "scaled": OpInfo(
        samples=_scaled_samples,
        errors=_scaled_errors,
        measured=_scaled_measured,
        baselines={"x * factor": lambda x, factor, like: (x * factor).to(like.dtype)},
    ),
}
