"""The kernel at the FuncTorchBatched key: one call for the whole batch where the rule has one, else the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _torch_private as private
from .overload import Overload


def batched_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for one overload."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        values = overload.bind(args, kwargs)
        try:
            return private.batched(one_call, lambda *values: overload.call(overload.op, values), values)
        except _NoRuleError:
            return overload.rule.decompose(overload, values)

    def one_call(info: Any, in_dims: tuple[Any, ...], *values: Any) -> Any:
        answer = overload.rule.vmap(overload, info.batch_size, in_dims, values)
        if answer is None:
            raise _NoRuleError
        return answer

    return kernel


class _NoRuleError(Exception):
    """The rule leaves a batch to the reference, whose operators PyTorch batches itself."""
