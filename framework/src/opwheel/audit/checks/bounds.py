"""Check of the memory around a call's tensors: nothing is written there."""

# ruff: noqa: ARG001
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...guarded_memory import guarded_memory, why_not
from .common import NotTried, by_name, tensors_of, with_tensors


def bounds(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Nothing is written beside arguments, results, and memory that the operator works with."""
    if reason := why_not():
        raise NotTried(f"memory cannot be watched: {reason}")
    with guarded_memory() as guards:
        args, kwargs = with_tensors(args, _fitting), with_tensors(kwargs, _fitting)
        results = op(*args, **kwargs)
        named = [(f"the argument '{name}'", value) for name, value in by_name(op, args, kwargs).items()]
        named += [(f"result {i}", value) for i, value in enumerate(tensors_of(results))]
        for name, value in named:
            for tensor in tensors_of(value):
                place = _is_watched(tensor) and guards.beside(tensor)
                assert not place, f"the operator writes {place} {name}"
    assert not guards.anywhere, f"the operator writes {guards.anywhere} memory that it works with"


def _fitting(x: Tensor) -> Tensor:
    """A copy whose memory ends where the tensor does."""
    if not _is_watched(x) or x.is_conj() or x.is_neg() or not x.numel():
        return x
    count = 1 + sum((length - 1) * stride for length, stride in zip(x.shape, x.stride(), strict=True))
    flat = torch.empty(count, dtype=x.dtype).copy_(x.detach().as_strided((count,), (1,)))
    return flat.as_strided(x.shape, x.stride())


def _is_watched(x: Tensor) -> bool:
    return x.layout is torch.strided and not x.is_quantized and x.device.type == "cpu"
