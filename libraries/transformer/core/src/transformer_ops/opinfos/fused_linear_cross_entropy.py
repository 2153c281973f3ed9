"""Calls of cross entropy of a linear layer's results for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

import transformer_ops

from ..operators.cross_entropy import cross_entropy_rows_reference
from .tensors import SHAPES, Calls, Make, confident_rows, randn


def _weights(device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of the 7 classes and the 5 tokens of :func:`_samples`."""
    computed = torch.float64 if dtype is torch.float64 else torch.float32
    return torch.rand(7, device=device, dtype=dtype), torch.rand(5, device=device, dtype=computed)


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    target = torch.tensor([1, 0, -100, 4, 2], device=device)
    yield Sample(make(5, 8), make(7, 8), target)
    yield Sample(make(5, 8), make(7, 8), target, make(7), -100, 1e-2, 0.1, "sum")
    yield Sample(make(5, 8), make(7, 8), torch.where(target < 0, 4, target), make(7), 4, 0.0, 0.1, "mean", 3.0)
    weights = _weights(device, dtype)
    yield Sample(make(5, 8), make(7, 8), target, make(7), -100, 1e-2, 0.1, "mean", 3.0, *weights)
    yield Sample(make(5, 8), make(7, 8), target, None, -100, 1e-2, 0.0, "sum", 0.0, *weights)
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
    class_weight: Tensor | None = None,
    token_weight: Tensor | None = None,
) -> Tensor:
    if lse_square_scale or softcap or class_weight is not None or token_weight is not None:
        raise ValueError("without lse_square_scale, softcap and weights")
    logits = torch.nn.functional.linear(input, weight, bias)
    if logits.dtype.itemsize == 2:
        logits = logits.float()
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
    for wrong_tokens in (x[0], x[0, :2].double()):
        sample = Sample(x, weight, target, None, -100, 0.0, 0.0, "mean", 0.0, None, wrong_tokens)
        yield ErrorSample(sample, RuntimeError)
    for wrong in ((0.0, -0.5, "mean", 0.0), (0.0, 0.0, "mean", -2.0)):
        yield ErrorSample(Sample(x, weight, target, None, -100, *wrong), RuntimeError)


def _rows_arguments(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[tuple[Any, ...]]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    target = torch.tensor([1, 0, -100, 4, 2], device=device)
    yield make(5, 8), make(7, 8), target, None, -100, 0.0, 0.0, 0.0, None, None
    yield make(5, 8), make(7, 8), target, make(7), -100, 1e-2, 0.1, 3.0, *_weights(device, dtype)


def _rows_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in _rows_arguments(device, dtype, requires_grad):
        yield Sample(*arguments)


def _swept(make: Make, rows: int, width: int) -> Calls | None:
    """Of inputs of 64 elements and as many classes as the width, where the product does not take too long."""
    if rows * width > 1 << 21:
        return None
    given = make(rows, 64), make(width, 64), torch.randint(width, (rows,))
    return partial(transformer_ops.fused_linear_cross_entropy, *given), partial(_of_two_operators, *given)


def _backward_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for x, weight, target, bias, *options in _rows_arguments(device, dtype, requires_grad):
        logits = torch.nn.functional.linear(x, weight, bias).detach()
        *numbers, class_weight, token_weight = options
        given: tuple[Any, ...] = (*numbers, "none", token_weight)
        loss, kept = cross_entropy_rows_reference(logits, target, class_weight, *given)
        grad = torch.randn_like(loss, requires_grad=requires_grad)
        yield Sample(grad, x, weight, target, bias, kept.requires_grad_(requires_grad), *options)


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


def _scaled_in_place_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for one in _scaled_samples(device, dtype, requires_grad):
        if one.args[0].dtype == dtype:
            yield one


def _scaled_in_place_errors(device: str) -> Iterator[ErrorSample]:
    yield from _scaled_errors(device)
    x = torch.ones(2, 3, device=device)
    yield ErrorSample(Sample(x, torch.ones((), device=device), x.half()), RuntimeError, "'x'")


INFOS = {
    "fused_linear_cross_entropy": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=_measured,
        swept=_swept,
        baselines={"F.cross_entropy": _of_two_operators},
    ),
    "fused_linear_cross_entropy_training": OpInfo(samples=_samples),
    "linear_cross_entropy_rows": OpInfo(samples=_rows_samples),
    "linear_cross_entropy_backward": OpInfo(samples=_backward_samples),
    "scaled": OpInfo(
        samples=_scaled_samples,
        errors=_scaled_errors,
        measured=_scaled_measured,
        baselines={"x * factor": lambda x, factor, like: (x * factor).to(like.dtype)},
    ),
    "scaled_": OpInfo(samples=_scaled_in_place_samples, errors=_scaled_in_place_errors),
}
