"""Calls of a linear layer for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

from .tensors import randn

# Leading dimensions, features in and out: one, several and no leading dimensions, no rows, more than registers and
# blocks have.
SIZES = (((3,), 8, 5), ((2, 3), 5, 12), ((), 7, 4), ((0,), 4, 3), ((9,), 270, 37))


def _pytorchs(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for leading, inputs, outputs in SIZES:
        yield Sample(make(*leading, inputs), make(outputs, inputs), make(outputs))
    yield Sample(make(4, 16), make(6, 16))


def _backward_input_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for leading, inputs, outputs in SIZES:
        yield Sample(make(*leading, outputs), make(outputs, inputs))


def _backward_weight_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for leading, inputs, outputs in SIZES:
        yield Sample(make(*leading, outputs), make(*leading, inputs))


def _backward_bias_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for leading, _, outputs in SIZES:
        yield Sample(make(*leading, outputs))


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype)

    def weight(outputs: int, inputs: int) -> Tensor:
        """As models initialise it: results are about 1, whatever the number of products that are summed."""
        values: Tensor = make(outputs, inputs) / inputs**0.5
        return values.requires_grad_(requires_grad)

    for rows in (1, 16, 512):
        yield Sample(make(rows, 2048, requires_grad=requires_grad), weight(2048, 2048))
    x, bias = (make(*shape, requires_grad=requires_grad) for shape in ((512, 768), (3072,)))
    yield Sample(x, weight(3072, 768), bias)


def _errors(device: str) -> Iterator[ErrorSample]:
    x, weight = torch.ones(3, 4, device=device), torch.ones(5, 4, device=device)
    yield ErrorSample(Sample(x[0, 0], weight), RuntimeError, "'x'")
    for wrong in (weight[:, :3], weight[0], weight[None], weight.double()):
        yield ErrorSample(Sample(x, wrong), RuntimeError, "'weight'")
    for wrong in (torch.ones(4, device=device), torch.ones(5, 1, device=device), torch.ones(5, device=device).double()):
        yield ErrorSample(Sample(x, weight, wrong), RuntimeError, "'bias'")


def _backward_weight_errors(device: str) -> Iterator[ErrorSample]:
    grad, x = torch.ones(2, 3, 5, device=device), torch.ones(2, 3, 4, device=device)
    for wrong in (x[:1], x[:, :2], x[0], x.double()):
        yield ErrorSample(Sample(grad, wrong), RuntimeError, "'x'")


def _backward_input_errors(device: str) -> Iterator[ErrorSample]:
    grad, weight = torch.ones(3, 5, device=device), torch.ones(5, 4, device=device)
    for wrong in (weight[:4], weight[:, 0], weight.double()):
        yield ErrorSample(Sample(grad, wrong), RuntimeError, "'weight'")


INFOS = {
    "linear": OpInfo(samples=_samples, errors=_errors, measured=_measured, baselines={"F.linear": _pytorchs}),
    "linear_backward_input": OpInfo(samples=_backward_input_samples, errors=_backward_input_errors),
    "linear_backward_weight": OpInfo(samples=_backward_weight_samples, errors=_backward_weight_errors),
    "linear_backward_bias": OpInfo(samples=_backward_bias_samples),
}
