"""Checks a peer's result with float64 before it is timed: nothing wrong is ever measured."""

from __future__ import annotations

import math
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from .cases import Case, Form
from .operands import Operands
from .peers import Peer

_CHUNK = 2**22  # elements that are compared at a time, so that the check of a large case needs little memory
# An expression rounds a narrow dtype twice, each time by at most half of eps.
_ROUNDINGS = 4


class WrongResultError(Exception):
    """A peer computed something else."""


def check(peer: Peer, case: Case, operands: Operands, code: CodeType, names: dict[str, Any]) -> None:
    """Run the peer once; raise WrongResultError unless it computed what it should."""
    a, b, c = operands.a.detach(), operands.b.detach(), operands.c
    before = a.clone() if case.form is Form.IN_PLACE else a
    if case.form is Form.OUT:
        operands.out.fill_(math.nan)
    result = eval(code, names)  # noqa: S307  # a statement of peers.py
    if case.form is Form.BACKWARD:
        assert operands.grad is not None
        _compare(peer, "the gradient of a", result[0], lambda grad, b: grad * b, operands.grad, b)
        _compare(peer, "the gradient of b", result[1], lambda grad, a: grad * a, operands.grad, a)
        return
    computed = {Form.OUT: operands.out, Form.IN_PLACE: a}.get(case.form, result)
    addend = c if isinstance(c, Tensor) else torch.tensor(c, dtype=torch.float64, device=a.device)
    _compare(peer, "the result", computed, peer.computes, before, b, addend)
    if case.form is Form.IN_PLACE:
        a.copy_(before)


def _compare(peer: Peer, what: str, computed: Tensor, formula: Any, *inputs: Tensor) -> None:
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in inputs))
    if computed.shape != shape:
        raise WrongResultError(f"{peer.name}: {what} has shape {list(computed.shape)} instead of {list(shape)}")
    tolerance = _ROUNDINGS * torch.finfo(computed.dtype).eps
    dim = max(range(len(shape)), key=lambda d: shape[d])
    step = max(1, _CHUNK * shape[dim] // math.prod(shape))
    chunks = [tensor.expand(shape).split(step, dim) for tensor in (computed.detach(), *inputs)]
    for got, *parts in zip(*chunks, strict=True):
        expected = formula(*(part.double() for part in parts))
        error = ((got.double() - expected) / expected).abs().max().item()
        if not error <= tolerance:
            raise WrongResultError(
                f"{peer.name}: {what} is off by {error:.2g} relative to float64, not {tolerance:.2g}"
            )
