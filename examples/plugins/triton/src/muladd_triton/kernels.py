"""The kernels. All operands lie in memory in the order of the output, or have one element for all."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import triton
import triton.language as tl
from opwheel.dispatch.overlap import is_dense
from opwheel.dispatch.tensor_iterator import compute_dtype
from torch import Tensor

BLOCK = 1024


@triton.jit
def _positions(n, BLOCK: tl.constexpr):
    # In 64 bits: there may be more than 2^31 elements.
    positions = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return positions, positions < n


@triton.jit
def _load(data, step: tl.constexpr, positions, mask, COMPUTE: tl.constexpr):
    # step is 0 where one element serves for all.
    return tl.load(data + positions * step, mask=mask).to(COMPUTE)


@triton.jit
def _store(data, positions, mask, value):
    tl.store(data + positions, value.to(data.dtype.element_ty), mask=mask)


@triton.jit
def _fma(
    out, x, y, z, n, X: tl.constexpr, Y: tl.constexpr, Z: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr
):
    at, mask = _positions(n, BLOCK)
    product = _load(x, X, at, mask, COMPUTE) * _load(y, Y, at, mask, COMPUTE)
    _store(out, at, mask, product + _load(z, Z, at, mask, COMPUTE))


@triton.jit
def _mul(out, x, y, n, X: tl.constexpr, Y: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    at, mask = _positions(n, BLOCK)
    _store(out, at, mask, _load(x, X, at, mask, COMPUTE) * _load(y, Y, at, mask, COMPUTE))


@triton.jit
def _add(out, x, y, n, X: tl.constexpr, Y: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    at, mask = _positions(n, BLOCK)
    _store(out, at, mask, _load(x, X, at, mask, COMPUTE) + _load(y, Y, at, mask, COMPUTE))


@triton.jit
def _mul_pair(
    out_y,
    out_x,
    z,
    x,
    y,
    n,
    Z: tl.constexpr,
    X: tl.constexpr,
    Y: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at, mask = _positions(n, BLOCK)
    common = _load(z, Z, at, mask, COMPUTE)
    # Both are loaded before anything is stored.
    first, second = _load(y, Y, at, mask, COMPUTE), _load(x, X, at, mask, COMPUTE)
    _store(out_y, at, mask, common * first)
    _store(out_x, at, mask, common * second)


_KERNELS = {"muladd": _fma, "fma": _fma, "mul": _mul, "add": _add, "scale": _mul, "muladd_backward": _mul_pair}
_TRITON = {torch.float32: tl.float32, torch.float64: tl.float64}


def launch(name: str, outputs: tuple[Tensor, ...], args: tuple[Any, ...]) -> None:
    """Compute an operator into ``outputs``; see :func:`opwheel.dispatch.implement`."""
    like = outputs[0]
    if not is_dense(like):
        dense = torch.empty_like(like)
        launch(name, (dense,), args)
        like.copy_(dense)
        return
    compute = compute_dtype(like.dtype)
    operands = [_operand(value, like, compute) for value in args]
    steps = [0 if operand.numel() == 1 else 1 for operand in operands]
    grid = (triton.cdiv(like.numel(), BLOCK),)
    with torch.cuda.device(like.device) if like.is_cuda else contextlib.nullcontext():
        _KERNELS[name][grid](*outputs, *operands, like.numel(), *steps, _TRITON[compute], BLOCK)


def _operand(value: Any, like: Tensor, compute: torch.dtype) -> Tensor:
    if not isinstance(value, Tensor):
        # Triton would hand a number over in float32, which is too little for float64 results.
        return torch.full((1,), value, dtype=compute, device=like.device)
    if all(size == 1 or stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True)):
        return value.as_strided((1,), (1,))
    return value if value.stride() == like.stride() else torch.empty_like(like, dtype=value.dtype).copy_(value)
