"""One declared sample of an operator, made anew for each use, and the dtypes that samples are asked for."""

from __future__ import annotations

from typing import Any

import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.overload import Overload

from ...opinfo import Sample
from ...opinfo.lookup import op_info_of
from .. import samples as made

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SEED = 2026


class Samples:
    """One declared sample of an operator, made anew for each use: calls may write to their arguments.

    Args:
        overload: whose sample it is.
        index: among the operator's samples.
        dtype: that the samples are asked for.
        device: of the tensors.
    """

    def __init__(self, overload: Overload, index: int, dtype: torch.dtype, device: torch.device) -> None:
        self.overload, self.index, self.dtype, self.device = overload, index, dtype, device

    def __repr__(self) -> str:
        return f"{self.overload.name}{self.sample()!r}"

    def sample(self, *, requires_grad: bool = False) -> Sample:
        """The sample, always with the same values."""
        return declared(self.overload, self.dtype, self.device, requires_grad=requires_grad)[self.index]

    def values(self, *, requires_grad: bool = False) -> tuple[Any, ...]:
        """The values of all arguments."""
        sample = self.sample(requires_grad=requires_grad)
        return self.overload.bind(sample.args, sample.kwargs)


def declared(
    overload: Overload, dtype: torch.dtype, device: torch.device, *, requires_grad: bool = False
) -> list[Sample]:
    """The samples of an operator; those of element-wise ones follow from the schema."""
    samples = op_info_of(overload).samples
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        if samples is not None:
            return list(samples(device, dtype, requires_grad))
        if not isinstance(overload.rule, Elementwise):
            return []
        shapes = ((3, 4), [(2, 3, 4), (4,), (3, 1)][: len(overload.tensor_arguments)], ())
        return [Sample(*made.arguments(overload, s, dtype, device, requires_grad=requires_grad)) for s in shapes]


def dtypes_of(overload: Overload) -> tuple[torch.dtype, ...]:
    """The dtypes of an operator's samples."""
    return op_info_of(overload).dtypes or FLOATS


def wide_dtype(overload: Overload) -> torch.dtype:
    """The dtype of the samples that derivatives are compared in."""
    return torch.float64 if torch.float64 in dtypes_of(overload) else dtypes_of(overload)[0]
