"""Softmax over the last dimension, and its logarithm."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from .arguments import check_like, check_rows, rows_of
from .language import load, log1p, store
from .launch import block_of, compute_dtype, launch


@triton.jit
def _softmax(x, y, x_stride, N: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    y += row * N
    largest = tl.full([BLOCK], -float("inf"), COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.where(at < N, load(x, at, at < N, COMPUTE), -float("inf")))
    top = tl.max(largest, 0)
    sums = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.where(at < N, tl.exp(load(x, at, at < N, COMPUTE) - top), 0)
    factor = 1 / tl.sum(sums, 0)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        store(y, at, at < N, tl.exp(load(x, at, at < N, COMPUTE) - top) * factor)


@triton.jit
def _softmax_backward(grad, y, dx, grad_stride, y_stride, N: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    # dx = y * (grad - sum(grad * y) / sum(y)): sum(y) is 1, but for what y is rounded by.
    row = tl.program_id(0).to(tl.int64)
    grad += row * grad_stride
    y += row * y_stride
    products = tl.zeros([BLOCK], COMPUTE)
    values = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = load(y, at, at < N, COMPUTE)
        products += load(grad, at, at < N, COMPUTE) * value
        values += value
    mean = tl.sum(products, 0) / tl.sum(values, 0)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = load(y, at, at < N, COMPUTE) * (load(grad, at, at < N, COMPUTE) - mean)
        store(dx + row * N, at, at < N, value)


@triton.jit
def _log_softmax(x, y, x_stride, N: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    y += row * N
    largest = tl.full([BLOCK], -float("inf"), COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.where(at < N, load(x, at, at < N, COMPUTE), -float("inf")))
    top = tl.max(largest, 0)
    # The largest are counted and the others summed: next to 1 a small sum would be lost, and it is the logarithm of an
    # element with nearly all of the weight.
    counts = tl.zeros([BLOCK], COMPUTE)
    others = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        weight = tl.where(at < N, tl.exp(load(x, at, at < N, COMPUTE) - top), 0)
        counts += tl.where(weight < 1, 0, weight)
        others += tl.where(weight < 1, weight, 0)
    log_total = log1p(tl.sum(others, 0) + (tl.sum(counts, 0) - 1))
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        store(y, at, at < N, (load(x, at, at < N, COMPUTE) - top) - log_total)


@triton.jit
def _log_softmax_backward(
    grad, y, dx, grad_stride, y_stride, N: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr
):
    # dx = grad - exp(y) * sum(grad).
    row = tl.program_id(0).to(tl.int64)
    grad += row * grad_stride
    y += row * y_stride
    sums = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.where(at < N, load(grad, at, at < N, COMPUTE), 0)
    total = tl.sum(sums, 0)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = load(grad, at, at < N, COMPUTE) - tl.exp(load(y, at, at < N, COMPUTE)) * total
        store(dx + row * N, at, at < N, value)


def _rows_like(kernel: Any, given: Tensor) -> Tensor:
    check_rows(given, "x")
    x = rows_of(given)
    rows, length = x.shape
    y = given.new_empty(given.shape)
    launch(kernel, rows, x, x, y, x.stride(0), N=length, COMPUTE=compute_dtype(x.dtype), **block_of(length))
    return y


def _gradient_of_rows(kernel: Any, given_grad: Tensor, given: Tensor) -> Tensor:
    check_rows(given, "y")
    check_like(given_grad, "grad_output", given, "y")
    grad, y = rows_of(given_grad), rows_of(given)
    rows, length = y.shape
    dx = given.new_empty(given.shape)
    launch(
        kernel,
        rows,
        y,
        grad,
        y,
        dx,
        grad.stride(0),
        y.stride(0),
        N=length,
        COMPUTE=compute_dtype(y.dtype),
        **block_of(length),
    )
    return dx


def softmax(given: Tensor) -> Tensor:
    """See ``transformer_ops.softmax``."""
    return _rows_like(_softmax, given)


def softmax_backward(given_grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of ``x``."""
    return _gradient_of_rows(_softmax_backward, given_grad, given)


def log_softmax(given: Tensor) -> Tensor:
    """See ``transformer_ops.log_softmax``."""
    return _rows_like(_log_softmax, given)


def log_softmax_backward(given_grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of ``x``."""
    return _gradient_of_rows(_log_softmax_backward, given_grad, given)
