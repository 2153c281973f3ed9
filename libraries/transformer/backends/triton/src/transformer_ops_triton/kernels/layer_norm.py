"""Layer normalisation."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .arguments import check_like, check_rows, rows_of, vector, wide
from .language import load, store, weighted
from .launch import block_of, compute_dtype, launch
from .weight_gradients import weight_gradients


@triton.jit
def _moments(x, N: tl.constexpr, EPS: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    # The mean, the rest that it is rounded by, and 1 / sqrt(variance + eps), nan where the squares overflow. In two
    # passes: the row is in registers, or in the cache. The first adds up distances from the first element: a sum of the
    # elements would be rounded to the last digit of an offset that they have in common.
    first = tl.load(x).to(COMPUTE)
    distances = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        distances += tl.where(mask, load(x, at, mask, COMPUTE) - first, 0)
    mean = first + tl.sum(distances, 0) / N
    sums = tl.zeros([BLOCK], COMPUTE)
    squares = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        centred = tl.where(mask, load(x, at, mask, COMPUTE) - mean, 0)
        sums += centred
        squares += centred * centred
    rest = tl.sum(sums, 0) / N
    variance = tl.sum(squares, 0) / N - rest * rest
    r = tl.rsqrt(tl.where(variance < 0, 0, variance) + EPS)
    return mean, rest, tl.where(variance == float("inf"), float("nan"), r)


@triton.jit
def _layer_norm(
    x,
    weight,
    bias,
    y,
    x_stride,
    N: tl.constexpr,
    EPS: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    y += row * N
    mean, rest, r = _moments(x, N, EPS, COMPUTE, BLOCK)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        value = (load(x, at, mask, COMPUTE) - mean - rest) * r
        if weight is not None:
            value *= load(weight, at, mask, COMPUTE)
        if bias is not None:
            value += load(bias, at, mask, COMPUTE)
        store(y, at, mask, value)


@triton.jit
def _layer_norm_backward(
    grad,
    x,
    weight,
    dx,
    means,
    rests,
    scales,
    grad_stride,
    x_stride,
    N: tl.constexpr,
    EPS: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # With h = (x - mean) * r and m = grad * weight: dx = r * (m - mean(m) - h * mean(m * h))
    row = tl.program_id(0).to(tl.int64)
    grad += row * grad_stride
    x += row * x_stride
    dx += row * N
    mean, rest, r = _moments(x, N, EPS, COMPUTE, BLOCK)
    tl.store(means + row, mean)
    tl.store(rests + row, rest)
    tl.store(scales + row, r)
    sums = tl.zeros([BLOCK], COMPUTE)
    products = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        m = weighted(grad, weight, at, mask, 0.0, COMPUTE)
        sums += m
        products += m * (load(x, at, mask, COMPUTE) - mean - rest) * r
    of_m = tl.sum(sums, 0) / N
    inner = tl.sum(products, 0) / N
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        m = weighted(grad, weight, at, mask, 0.0, COMPUTE)
        normalised = (load(x, at, mask, COMPUTE) - mean - rest) * r
        store(dx, at, mask, r * (m - of_m - normalised * inner))


def layer_norm(given: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """See ``transformer_ops.layer_norm``."""
    check_rows(given, "x")
    x = rows_of(given)
    rows, length = x.shape
    y = given.new_empty(given.shape)
    launch(
        _layer_norm,
        rows if length else 0,
        x,
        x,
        vector(weight, "weight", given, "x"),
        vector(bias, "bias", given, "x"),
        y,
        x.stride(0),
        N=length,
        EPS=eps,
        COMPUTE=compute_dtype(x.dtype),
        **block_of(length),
    )
    return y


def layer_norm_backward(
    given_grad: Tensor, given: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``x``, ``weight`` and ``bias``."""
    check_rows(given, "x")
    check_like(given_grad, "grad_output", given, "x")
    grad, x = rows_of(given_grad), rows_of(given)
    rows, length = x.shape
    dx = given.new_empty(given.shape)
    moments = mean, rest, scale = given.new_empty(3, rows, dtype=wide(x.dtype)).unbind()
    launch(
        _layer_norm_backward,
        rows if length else 0,
        x,
        grad,
        x,
        vector(weight, "weight", given, "x"),
        dx,
        *moments,
        grad.stride(0),
        x.stride(0),
        N=length,
        EPS=eps,
        COMPUTE=compute_dtype(x.dtype),
        **block_of(length),
    )
    d_weight, d_bias = weight_gradients(grad, x, scale, (mean, rest))
    return dx, d_weight, d_bias
