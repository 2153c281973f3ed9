"""Calls of cross entropy for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf, nan
from typing import Any

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

import transformer_ops

from ..operators.cross_entropy import cross_entropy_rows_reference
from ..operators.precision import wide
from .tensors import Calls, Make, confident_rows, randn


def _pytorchs(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str = "none",
    token_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The rows' losses by PyTorch, from which log(sum(exp)) follows without another pass over the logits."""
    if weight is not None or token_weight is not None or lse_square_scale or label_smoothing or softcap:
        raise ValueError("without weights, lse_square_scale, label_smoothing and softcap")
    if reduction != "none":
        raise ValueError("without a reduction")
    loss = torch.nn.functional.cross_entropy(wide(input), target, ignore_index=ignore_index, reduction="none")
    counted = target != ignore_index
    index = torch.where(counted, target, 0).unsqueeze(-1)
    lse = loss.detach() + wide(input.detach().gather(-1, index).squeeze(-1))
    return loss, torch.cat((torch.where(counted, lse, 0), torch.zeros_like(lse)))


def _numbers() -> Iterator[tuple[float, float, float]]:
    """lse_square_scale, label_smoothing, softcap."""
    yield 0.0, 0.0, 0.0
    yield 1e-2, 0.1, 0.0
    yield 0.0, 0.1, 3.0


def _arguments(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[tuple[Any, ...]]:
    make = partial(randn, device=device, dtype=dtype)
    target = torch.tensor([1, 0, -100, 4, 2], device=device)
    tokens = torch.rand(5, device=device, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
    for numbers, reduction in zip(_numbers(), ("mean", "sum", "none"), strict=True):
        yield make(5, 37, requires_grad=requires_grad), target, None, -100, *numbers
        weight = torch.rand(5, device=device, dtype=dtype)
        yield make(5, 5, requires_grad=requires_grad), target, weight, -100, *numbers
        yield make(5, 5, requires_grad=requires_grad), target, weight, -100, *numbers, reduction, tokens
        sure = confident_rows(40, device=device, dtype=dtype, requires_grad=requires_grad)
        yield sure, torch.arange(len(sure), device=device), None, -100, *numbers


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for arguments in _arguments(device, dtype, requires_grad):
        yield Sample(*arguments)


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    rows, classes = 512, 32_000
    target = torch.randint(classes, (rows,), device=device)
    x = randn(rows, classes, device=device, dtype=dtype, requires_grad=requires_grad)
    yield Sample(x, target, None, -100, 0.0, 0.0, 0.0)


def _swept(make: Make, rows: int, width: int) -> Calls:
    x, target = make(rows, width), torch.randint(width, (rows,))
    return partial(transformer_ops.cross_entropy, x, target), partial(torch.nn.functional.cross_entropy, x, target)


def _backward_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for x, target, weight, ignored, *given in _arguments(device, dtype, requires_grad):
        options = (ignored, *given) if len(given) > 3 else (ignored, *given, "none", None)
        loss, kept = cross_entropy_rows_reference(x.detach(), target, weight, *options)
        grad = torch.rand_like(loss, requires_grad=requires_grad)
        yield Sample(grad, x, target, weight, kept.requires_grad_(requires_grad), *options)


def _errors(device: str) -> Iterator[ErrorSample]:
    x, numbers = torch.ones(2, 3, device=device), (-100, 0.0, 0.0, 0.0)
    wrong_target = torch.tensor([0, 3], device=device)
    yield ErrorSample(Sample(x, wrong_target, None, *numbers), (RuntimeError, IndexError), by_values=True)
    yield ErrorSample(Sample(x, torch.tensor([0], device=device), None, *numbers), RuntimeError)
    target = torch.tensor([0, 1], device=device)
    for wrong in ((0.0, 1.5, 0.0), (0.0, 0.0, -2.0), (0.0, 0.0, nan), (0.0, 0.0, inf)):
        yield ErrorSample(Sample(x, target, None, -100, *wrong), RuntimeError)
    yield ErrorSample(Sample(x, target, None, *numbers, "max"), (RuntimeError, ValueError))
    yield ErrorSample(Sample(x, target, x[0, :2], *numbers), RuntimeError)
    for wrong_tokens in (x[0], x[0, :2].double()):
        yield ErrorSample(Sample(x, target, None, *numbers, "mean", wrong_tokens), RuntimeError)


INFOS = {
    "cross_entropy_rows": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=_measured,
        swept=_swept,
        baselines={"F.cross_entropy": _pytorchs},
    ),
    "cross_entropy_backward": OpInfo(samples=_backward_samples),
}
