"""The kernel at the FuncTorchBatched key: one call for the whole batch where the rule has one, else the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._torch import private
from . import autocast
from .overload import Overload


def batched_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for one overload."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return autocast.call_as_cast(overload, overload.bind(args, kwargs), batched)

    def batched(values: tuple[Any, ...]) -> Any:
        try:
            return private.batched(one_call, lambda *values: overload.call(overload.op, values), values)
        except _NoRuleError:
            return _of_reference(overload, values)

    def one_call(info: Any, in_dims: tuple[Any, ...], *values: Any) -> Any:
        answer = overload.rule.vmap(overload, info.batch_size, in_dims, values)
        if answer is None:
            raise _NoRuleError
        return answer

    return kernel


def random_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel at the FuncTorchVmapMode key, where calls arrive whether or not their arguments are batched.

    The reference's own random operators see there what ``vmap(randomness=...)`` asks for.
    """

    def kernel(*args: Any, **kwargs: Any) -> Any:
        values = overload.bind(args, kwargs)
        return autocast.call_as_cast(overload, values, lambda given: _of_reference(overload, given))

    return kernel


def _of_reference(overload: Overload, values: tuple[Any, ...]) -> Any:
    """What the reference computes, whose operators PyTorch batches."""
    from .decompositions import decompose  # seldom needed

    _check_records_nothing(overload, values)
    return decompose(overload, values)


def _check_records_nothing(overload: Overload, values: tuple[Any, ...]) -> None:
    """Refuse what has no derivative, where the reference, which has some, takes its place."""
    if overload.operator.derivatives is not None or not torch.is_grad_enabled():
        return
    if any(layer.requires_grad for one in overload.all_tensors(values) for layer in private.layers(one)):
        raise RuntimeError(
            f"{overload.name}: is not differentiable; under vmap call it with .detach() of its arguments, or under "
            "torch.no_grad()"
        )


class _NoRuleError(Exception):
    """The rule leaves a batch to the reference, whose operators PyTorch batches itself."""

    code = None  # caught here: no caller sees it
