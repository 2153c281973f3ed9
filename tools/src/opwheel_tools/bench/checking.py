"""Checks an implementation's result with float64 before it is timed: nothing wrong is ever measured."""

from __future__ import annotations

import math
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from .suite import Case, Form, Implementation, Operands, Suite

_CHUNK = 2**22  # elements that are compared at a time, so that the check of a large case needs little memory
# An expression rounds a narrow dtype twice, each time by at most half of eps.
_ROUNDINGS = 4


class WrongResultError(Exception):
    """An implementation computed something else."""

    code = "OPWHEEL-E096"


def check(
    suite: Suite, implementation: Implementation, case: Case, operands: Operands, code: CodeType, names: dict[str, Any]
) -> None:
    """Run the implementation once; raise WrongResultError unless it computed what it should."""
    inputs = [_as_tensor(value, operands.out.device) for value in operands.inputs.values()]
    overwritten = inputs[0]
    if case.form is Form.IN_PLACE:
        inputs[0] = overwritten.clone()
    if case.form is Form.OUT:
        operands.out.fill_(math.nan)
    result = eval(code, names)  # noqa: S307  # a statement of the suite
    if case.form is Form.BACKWARD:
        assert operands.grad is not None
        for computed, (name, formula) in zip(result, suite.gradients.items(), strict=True):
            _compare(implementation, f"the gradient of {name}", computed, formula, operands.grad, *inputs)
        return
    computed = {Form.OUT: operands.out, Form.IN_PLACE: overwritten}.get(case.form, result)
    _compare(implementation, "the result", computed, implementation.computes or suite.computes, *inputs)
    if case.form is Form.IN_PLACE:
        overwritten.copy_(inputs[0])


def _as_tensor(value: Any, device: torch.device) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    return torch.tensor(value, dtype=torch.float64, device=device)


def _compare(implementation: Implementation, what: str, computed: Tensor, formula: Any, *inputs: Tensor) -> None:
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in inputs))
    if computed.shape != shape:
        raise WrongResultError(
            f"{implementation.name}: {what} has shape {list(computed.shape)} instead of {list(shape)}"
        )
    tolerance = _ROUNDINGS * torch.finfo(computed.dtype).eps
    dim = max(range(len(shape)), key=lambda d: shape[d])
    step = max(1, _CHUNK * shape[dim] // math.prod(shape))
    chunks = [tensor.expand(shape).split(step, dim) for tensor in (computed.detach(), *inputs)]
    for got, *parts in zip(*chunks, strict=True):
        expected = formula(*(part.double() for part in parts))
        error = ((got.double() - expected) / expected).abs().max().item()
        if not error <= tolerance:
            raise WrongResultError(
                f"{implementation.name}: {what} is off by {error:.2g} relative to float64, not {tolerance:.2g}"
            )
