"""PyTorch's own validator of sharding rules, for operators of any library.

``torch.distributed.tensor._ops.strategy_validation`` takes operators of ``aten`` that have an ``OpInfo`` in PyTorch's
tests. Here it is given OpInfos that are made from the samples of a library, and sees the library's operators, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed.tensor._ops.strategy_validation as validation
from opwheel.dispatch.overload import Overload
from torch import Tensor
from torch.testing._internal.common_dtype import _dispatch_dtypes
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from ..checks.cases import declared, wide_dtype
from .processes import simulated_group


class Validated(NamedTuple):
    """What PyTorch's validator says of an operator.

    Args:
        correct: the number of combinations of placements that DTensor takes to be right, and that are.
        incorrect: those that are not, in words.
        skipped: why samples were left out, and how many.
    """

    correct: int
    incorrect: tuple[str, ...]
    skipped: dict[str, int]


def validate(overload: Overload, world_size: int, dtype: torch.dtype | None = None) -> Validated:
    """Let PyTorch's validator look for placements that DTensor takes to be right, and that are not.

    It leaves out parts of different sizes and empty tensors, and takes the tensors that are given by position.

    Args:
        overload: a functional one that has samples.
        world_size: how many processes it simulates.
        dtype: of the samples; float64 where the operator has such samples.
    """
    chosen = dtype or wide_dtype(overload)
    info = op_info(overload)
    with simulated_group(world_size), _seen(overload, info):
        stats = validation.compare_operator(info.name, "cpu", chosen, world_size, incorrect_only=True)
    if stats.no_dtensor_support:
        raise ValueError(f"{overload.qualified_name}: DTensor does not know it, or it has no sample that it can take")
    wrong = dict.fromkeys(
        f"{', '.join(one.input_placements)} -> {', '.join(one.output_placements)}" for one in stats.false_positives
    )
    return Validated(stats.true_positives, tuple(wrong), stats.skip_reasons)


def op_info(overload: Overload) -> OpInfo:
    """An ``OpInfo`` of PyTorch's tests, made from the samples of a library's operator."""

    def samples(_: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **__: Any) -> Iterator[SampleInput]:
        for sample in declared(overload, dtype, torch.device(device), requires_grad=requires_grad):
            first, *others = overload.bind(sample.args, sample.kwargs)
            given = dict(
                zip(overload.names[len(overload.arguments) :], others[len(overload.arguments) - 1 :], strict=True)
            )
            yield SampleInput(first, args=tuple(others[: len(overload.arguments) - 1]), kwargs=given)

    return OpInfo(
        overload.qualified_name.replace("::", "."),
        op=overload.op,
        dtypes=_dispatch_dtypes((wide_dtype(overload),)),
        sample_inputs_func=samples,
        supports_out=False,
    )


@contextmanager
def _seen(overload: Overload, info: OpInfo) -> Iterator[None]:
    """PyTorch's validator knows the OpInfo, and notices calls of the overload."""

    class Capture(validation._CaptureAtenOp):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func is overload.op:
                self.all_ops.append((func, args, kwargs or {}, result))
                self.best_match = func
            return result

    before = validation._CaptureAtenOp
    validation._CaptureAtenOp = Capture  # type: ignore[misc]
    op_db.append(info)
    try:
        yield
    finally:
        op_db.remove(info)
        validation._CaptureAtenOp = before  # type: ignore[misc]


def has_tensors_in_front(overload: Overload) -> bool:
    """Whether the validator can take the operator's calls: the first argument is a tensor, and none is in a list."""
    kinds = [str(argument.real_type) for argument in overload.schema.arguments]
    return kinds[0] == "Tensor" and not any(kind.startswith("List[") and "Tensor" in kind for kind in kinds)


def tensors_of(values: tuple[Any, ...]) -> list[tuple[str, Tensor]]:
    """The tensors among arguments, as the validator names them."""
    found: list[tuple[str, Tensor]] = validation.extract_tensors_from_args(values, {})
    return found
