"""One declared sample of an operator, made anew for each use, and the dtypes that samples are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.overload import Overload
from torch import Tensor
from torch.utils import _pytree as pytree

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

    Attributes:
        left_out: what a check has not tried with the sample, or with inputs that it has made from it, and why.
        is_left_out: whether a check could not be made with the sample at all.
    """

    def __init__(self, overload: Overload, index: int, dtype: torch.dtype, device: torch.device) -> None:
        self.overload, self.index, self.dtype, self.device = overload, index, dtype, device
        self.left_out: list[str] = []
        self.is_left_out = False

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


def holds_numbers(overload: Overload, position: int) -> bool:
    """Whether an argument's values may be others: they are no indices, sizes or coordinates."""
    return overload.names[position] not in op_info_of(overload).index_arguments


def with_other_numbers(
    overload: Overload, values: tuple[Any, ...], change: Callable[[Tensor], Tensor]
) -> tuple[Any, ...]:
    """The values of all arguments; floating-point and complex tensors that hold numbers to compute with are changed."""

    def of(value: Any) -> Any:
        is_number = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
        return change(value) if is_number else value

    return tuple(pytree.tree_map(of, value) if holds_numbers(overload, i) else value for i, value in enumerate(values))


def dtypes_of(overload: Overload) -> tuple[torch.dtype, ...]:
    """The dtypes of an operator's samples."""
    return op_info_of(overload).dtypes or FLOATS


def wide_dtype(overload: Overload) -> torch.dtype:
    """The dtype of the samples that derivatives are compared in."""
    return torch.float64 if torch.float64 in dtypes_of(overload) else dtypes_of(overload)[0]
