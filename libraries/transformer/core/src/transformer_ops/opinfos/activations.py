"""Calls of gated activations for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor
from torch.nn import functional

from .tensors import SHAPES, measured, randn, swept

# Where an activation is nearly 0 or its argument, and near the zeros of silu's and gelu's derivatives.
_SATURATED = (-90.0, -30.0, -20.0, -16.0, -8.0, -1.2785, -0.7519, 1e-3, 8.0, 16.0, 20.0, 30.0, 90.0)


def _samples(
    device: str, dtype: torch.dtype, requires_grad: bool, *, inputs: int = 2, options: tuple[str, ...] = ()
) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    for shape in SHAPES:
        yield Sample(*(make(*shape) for _ in range(inputs)), *options[:1])
    for option in options[1:]:
        yield Sample(*(make(3, 8) for _ in range(inputs)), option)
    for chosen in options or (None,):
        a = torch.tensor(_SATURATED, device=device, dtype=dtype).requires_grad_(requires_grad)
        others = (make(len(_SATURATED)) for _ in range(inputs - 1))
        gradient = [next(others)] if inputs == 3 else []
        yield Sample(*gradient, a, *others, *([chosen] if chosen else []))


def _errors(device: str) -> Iterator[ErrorSample]:
    a = torch.ones(3, 4, device=device)
    yield ErrorSample(Sample(a, torch.ones(3, 5, device=device)), RuntimeError)
    yield ErrorSample(Sample(a, a.double()), RuntimeError)


def _pytorchs_swiglu(a: Tensor, b: Tensor) -> Tensor:
    return functional.silu(a) * b


def _pytorchs_geglu(a: Tensor, b: Tensor, approximate: str = "tanh") -> Tensor:
    return functional.gelu(a, approximate=approximate) * b


INFOS = {
    "swiglu": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=measured(2, large=True),
        swept=swept("swiglu", _pytorchs_swiglu, 2),
        baselines={"F.silu(a) * b": _pytorchs_swiglu},
    ),
    "swiglu_backward": OpInfo(samples=partial(_samples, inputs=3)),
    "geglu": OpInfo(
        samples=partial(_samples, options=("tanh", "none")),
        errors=_errors,
        measured=measured(2),
        swept=swept("geglu", _pytorchs_geglu, 2),
        baselines={"F.gelu(a) * b": _pytorchs_geglu},
    ),
    "geglu_backward": OpInfo(samples=partial(_samples, inputs=3, options=("tanh", "none"))),
}
