"""What tests need to know of ``name.out``, made from that of ``name``: the same calls, and a tensor to write into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from .declaration import OpInfo
from .samples import ErrorSample, Sample


def out_variant(info: OpInfo, reference: Callable[..., Any]) -> OpInfo:
    """That of an out variant that is made from its operator's declaration.

    Args:
        info: of the operator.
        reference: of the operator, which has one result.
    """
    return OpInfo(
        samples=_with_out(info.samples, reference),
        errors=_errors(info, reference),
        measured=_with_out(info.measured, reference),
        dtypes=info.dtypes,
        index_arguments=info.index_arguments,
        tolerance=info.tolerance,
    )


def _with_out(samples: Callable[..., Iterable[Sample]] | None, reference: Callable[..., Any]) -> Any:
    if samples is None:
        return None

    def make(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
        del requires_grad  # out= records no gradients
        for sample in samples(device, dtype, False):
            result = reference(*sample.args, **sample.kwargs)
            yield _given(sample, torch.zeros_like(result, memory_format=torch.contiguous_format))

    return make


def _errors(info: OpInfo, reference: Callable[..., Any]) -> Any:
    def make(device: str) -> Iterator[ErrorSample]:
        for error in info.errors(device) if info.errors else ():
            yield error._replace(sample=_given(error.sample, torch.empty(0, device=device)), match="")
        dtype = (info.dtypes or (torch.float32,))[0]
        for sample in info.samples(device, dtype, False) if info.samples else ():
            result = reference(*sample.args, **sample.kwargs)
            yield ErrorSample(_given(sample, result.new_empty((2, *result.shape))), RuntimeError, "'out'")
            yield ErrorSample(_given(sample, result.to(torch.int16)), RuntimeError, "'out'")
            return

    return make


def _given(sample: Sample, out: Tensor) -> Sample:
    return Sample(*sample.args, name=sample.name, **sample.kwargs, out=out)
