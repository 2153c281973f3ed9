"""Quantisation to int8 with a scale for each row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import FLOATING, check_device, check_dtype, check_rows, check_shape, refuse, rows_of
from .language import elements, load, store
from .launch import block_of, launch

BLOCK = 1024


@triton.jit
def _quantize(x, q, scales, x_stride, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    largest = tl.zeros([BLOCK], tl.float32)
    nans = tl.zeros([BLOCK], tl.int32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.abs(load(x, at, at < N, tl.float32))
        largest = tl.maximum(largest, tl.where(value == value, value, 0))
        nans += tl.where(value == value, 0, 1)
    scale = tl.div_rn(tl.max(largest, 0), 127.0)
    if tl.sum(nans, 0) > 0:
        scale = scale * float("nan")
    tl.store(scales + row, scale)
    is_finite = scale < float("inf")  # nor nan
    divisor = tl.where(scale > 0, scale, 1.0)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        quotient = tl.div_rn(load(x, at, at < N, tl.float32), divisor)
        # Above 2^23 there are only whole numbers: the sum is rounded to one, to the nearest, ties to even.
        nearest = (quotient + 12582912.0) - 12582912.0
        # Tiny scales have few bits: a quotient may be larger than 127.
        nearest = tl.where(is_finite, tl.minimum(tl.maximum(nearest, -127.0), 127.0), 0.0)
        tl.store(q + row * N + at, nearest.to(tl.int8), mask=at < N)


@triton.jit
def _dequantize(q, scales, x, columns, q_stride, BLOCK: tl.constexpr):
    row, at = elements(columns, BLOCK)
    mask = at < columns
    store(x + row * columns, at, mask, load(q + row * q_stride, at, mask, tl.float32) * tl.load(scales + row))


def quantize_rowwise(given: Tensor) -> tuple[Tensor, Tensor]:
    """See ``transformer_ops.quantize_rowwise``."""
    check_rows(given, "x")
    x = rows_of(given)
    rows, length = x.shape
    q = given.new_empty(given.shape, dtype=torch.int8)
    scale = given.new_empty(given.shape[:-1], dtype=torch.float32)
    launch(_quantize, rows, x, x, q, scale, x.stride(0), N=length, **block_of(length))
    return q, scale


def dequantize_rowwise(given: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    """See ``transformer_ops.dequantize_rowwise``."""
    check_dtype(given, "q", torch.int8)
    if given.dim() < 1:
        refuse("q", "has 0 dimensions, expected at least 1")
    if dtype not in FLOATING:
        refuse("dtype", f"is {dtype}, expected one of {', '.join(map(str, FLOATING))}")
    check_dtype(scale, "scale", torch.float32)
    check_device(scale, "scale", given, "q")
    check_shape(scale, "scale", *given.shape[:-1])
    q = rows_of(given)
    rows, columns = q.shape
    x = given.new_empty(given.shape, dtype=dtype)
    programs = rows * triton.cdiv(columns, BLOCK)
    launch(_dequantize, programs, q, q, scale.contiguous(), x, columns, q.stride(0), **block_of(BLOCK))
    return x
