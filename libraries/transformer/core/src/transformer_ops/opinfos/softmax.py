"""Calls of softmax and log_softmax for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel import Operator
from opwheel_tools import OpInfo, Sample
from torch import Tensor

from ..operators.softmax import LOG_SOFTMAX, SOFTMAX
from .tensors import SHAPES, confident_rows, measured, randn, swept


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in SHAPES:
        yield Sample(make(*shape))
    yield Sample(confident_rows(40, device=device, dtype=dtype, requires_grad=requires_grad))


def _backward_samples(forward: Operator, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype)
    for x in (*(make(*shape) for shape in SHAPES), confident_rows(40, device=device, dtype=dtype)):
        y = forward.reference(x).requires_grad_(requires_grad)
        yield Sample(make(*x.shape, requires_grad=requires_grad), y)


def _pytorchs(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _pytorchs_log(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


INFOS = {
    "softmax": OpInfo(
        samples=_samples,
        measured=measured(1),
        swept=swept("softmax", _pytorchs),
        baselines={"F.softmax": _pytorchs},
    ),
    "softmax_backward": OpInfo(samples=partial(_backward_samples, SOFTMAX)),
    "log_softmax": OpInfo(
        samples=_samples,
        measured=measured(1),
        swept=swept("log_softmax", _pytorchs_log),
        baselines={"F.log_softmax": _pytorchs_log},
    ),
    "log_softmax_backward": OpInfo(samples=partial(_backward_samples, LOG_SOFTMAX)),
}
