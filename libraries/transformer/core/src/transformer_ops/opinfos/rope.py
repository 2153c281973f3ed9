"""Calls of rotary position embedding for tests and benchmarks, and what else computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from torch import Tensor

import transformer_ops

from .tensors import Calls, Make, randn


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype)
    leaf = partial(make, requires_grad=requires_grad)
    cos, sin = (torch.cat((half, half), -1) for half in (make(1, 3, 4), make(1, 3, 4)))  # as models have them
    yield Sample(leaf(2, 4, 3, 8), leaf(2, 2, 3, 8), cos, sin)
    yield Sample(leaf(2, 4, 3, 8), leaf(2, 2, 3, 8), make(2, 3, 8), make(2, 3, 8), None, 1, True)
    yield Sample(leaf(2, 3, 4, 40), leaf(2, 3, 1, 40), make(3, 20), make(3, 20), None, 2, False, 40)
    ids = torch.tensor([[4, 0, 2], [1, 1, 3]], device=device)
    yield Sample(leaf(2, 1, 3, 8), leaf(2, 2, 3, 8), make(5, 8), make(5, 8), ids)
    yield Sample(leaf(2, 1, 3, 8), leaf(2, 2, 3, 8), make(5, 4), make(5, 4), ids[:1], 1, True, 8)
    yield Sample(leaf(2, 2, 70, 8), leaf(2, 1, 70, 8), make(1, 70, 8), make(1, 70, 8))


def _as_models_write_it(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
    interleaved: bool = False,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    if position_ids is not None or interleaved or rotary_dim is not None:
        raise ValueError("not with position ids, of halves alone, and with tables as wide as heads")
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)

    def turned(x: Tensor) -> Tensor:
        u, v = x.chunk(2, -1)
        return x * cos + torch.cat((-v, u), -1) * sin

    return turned(q), turned(k)


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype)
    for batch in (2, 1):
        q, k = (make(batch, heads, 1024, 128, requires_grad=requires_grad) for heads in (16, 4))
        angles = make(1, 1024, 64)
        cos, sin = (torch.cat((half, half), -1) for half in (angles.cos(), angles.sin()))
        yield Sample(q, k, cos, sin)


def _swept(make: Make, rows: int, width: int) -> Calls | None:
    if width % 2:
        return None
    q, k = (make(rows, width)[None, None] for _ in range(2))
    cos, sin = (torch.rand(1, rows, width).to(q.dtype) for _ in range(2))
    return partial(transformer_ops.rope, q, k, cos, sin), partial(_as_models_write_it, q, k, cos, sin)


def _errors(device: str) -> Iterator[ErrorSample]:
    q, cos = torch.ones(2, 1, 3, 8, device=device), torch.ones(5, 8, device=device)
    wrong = torch.tensor([[5, 0, 0]], device=device)
    yield ErrorSample(Sample(q, q, cos, cos, wrong), (RuntimeError, IndexError), by_values=True)
    yield ErrorSample(Sample(q, q, cos, cos), RuntimeError)
    # Of half tables nobody can tell whether they are for all of a head or for a part of it.
    full, half = torch.ones(3, 8, device=device), torch.ones(3, 4, device=device)
    yield ErrorSample(Sample(q, q, half, half), RuntimeError, "'cos' has")
    for tables, rotary_dim in ((full, 4), (half, 4), (half, 16), (torch.ones(3, 2, device=device), 8)):
        yield ErrorSample(Sample(q, q, tables, tables, None, 1, False, rotary_dim), RuntimeError)


INFOS = {
    "rope": OpInfo(
        samples=_samples,
        errors=_errors,
        measured=_measured,
        swept=_swept,
        baselines={"as models write it": _as_models_write_it},
    ),
}
