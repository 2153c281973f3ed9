"""Gated activations: an activation of one half, times the other half."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .arguments import (
    check_like,
    check_out,
    check_rows,
    in_memory_order,
    refuse,
    rows_of,
    share_strides,
    write_back,
)
from .language import elements, load, rounded, store
from .launch import block_of, compute_dtype, launch

BLOCK = 1024


@triton.jit
def _activation(x, NAME: tl.constexpr):
    # Value and derivative.
    if NAME == "silu":
        s = tl.sigmoid(x)
        value = x * s
        derivative = s * (1 + x * (1 - s))
    elif NAME == "gelu_tanh":
        # (1 + tanh(u)) / 2 is sigmoid(2 u), with 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
        s = tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))
        value = x * s
        derivative = s + value * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x)
    else:
        # With the normal distribution's function, and its density: sqrt(1/2) and 1 / sqrt(2 pi).
        phi = 0.5 * (1 + tl.erf(x * 0.7071067811865476))
        value = x * phi
        derivative = phi + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    return value, derivative


@triton.jit
def _gated(
    a, b, y, columns, a_stride, b_stride, y_stride, NAME: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr
):
    row, at = elements(columns, BLOCK)
    mask = at < columns
    value, _ = _activation(load(a + row * a_stride, at, mask, COMPUTE), NAME)
    value = rounded(value, a.dtype.element_ty).to(COMPUTE)
    store(y + row * y_stride, at, mask, value * load(b + row * b_stride, at, mask, COMPUTE))


@triton.jit
def _gated_backward(
    grad,
    a,
    b,
    da,
    db,
    columns,
    grad_stride,
    a_stride,
    b_stride,
    NAME: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, at = elements(columns, BLOCK)
    mask = at < columns
    value, derivative = _activation(load(a + row * a_stride, at, mask, COMPUTE), NAME)
    gradient = load(grad + row * grad_stride, at, mask, COMPUTE)
    store(da + row * columns, at, mask, gradient * load(b + row * b_stride, at, mask, COMPUTE) * derivative)
    store(db + row * columns, at, mask, gradient * value)


def _check(a: Tensor, b: Tensor) -> None:
    check_rows(a, "a")
    check_like(b, "b", a, "a")


def _forward(given_a: Tensor, given_b: Tensor, name: str) -> Tensor:
    _check(given_a, given_b)
    if share_strides(given_a, given_b):
        y = given_a.new_empty_strided(given_a.shape, given_a.stride())
        _launch(in_memory_order(given_a), in_memory_order(given_b), in_memory_order(y), name)
        return y
    y = given_a.new_empty(given_a.shape)
    _launch(rows_of(given_a), rows_of(given_b), rows_of(y), name)
    return y


def _launch(a: Tensor, b: Tensor, y: Tensor, name: str) -> None:
    """All of ``(rows, length)``."""
    columns = a.shape[1]
    launch(
        _gated,
        a.shape[0] * triton.cdiv(columns, BLOCK),
        a,
        a,
        b,
        y,
        columns,
        a.stride(0),
        b.stride(0),
        y.stride(0),
        NAME=name,
        COMPUTE=compute_dtype(a.dtype),
        **block_of(BLOCK),
    )


def _backward(given_grad: Tensor, given_a: Tensor, given_b: Tensor, name: str) -> tuple[Tensor, Tensor]:
    check_rows(given_a, "a")
    check_like(given_b, "b", given_a, "a")
    check_like(given_grad, "grad_output", given_a, "a")
    if share_strides(given_a, given_b, given_grad):
        da, db = (given_a.new_empty_strided(given_a.shape, given_a.stride()) for _ in range(2))
        grad, a, b = in_memory_order(given_grad), in_memory_order(given_a), in_memory_order(given_b)
    else:
        da, db = given_a.new_empty(given_a.shape), given_a.new_empty(given_a.shape)
        grad, a, b = rows_of(given_grad), rows_of(given_a), rows_of(given_b)
    columns = a.shape[1]
    launch(
        _gated_backward,
        a.shape[0] * triton.cdiv(columns, BLOCK),
        a,
        grad,
        a,
        b,
        da,
        db,
        columns,
        grad.stride(0),
        a.stride(0),
        b.stride(0),
        NAME=name,
        COMPUTE=compute_dtype(a.dtype),
        **block_of(BLOCK),
    )
    return da, db


def _gelu(approximate: str) -> str:
    if approximate not in ("tanh", "none"):
        refuse("approximate", f"is '{approximate}', expected 'tanh' or 'none'")
    return "gelu_tanh" if approximate == "tanh" else "gelu"


def swiglu(a: Tensor, b: Tensor) -> Tensor:
    """See ``transformer_ops.swiglu``."""
    return _forward(a, b, "silu")


def swiglu_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """See ``transformer_ops.swiglu``."""
    _check(a, b)
    check_out(out, a, "a", b=b)
    y = rows_of(out)
    _launch(rows_of(a), rows_of(b), y, "silu")
    write_back(y, out)


def swiglu_backward(grad_output: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of ``a`` and ``b``."""
    return _backward(grad_output, a, b, "silu")


def geglu(a: Tensor, b: Tensor, approximate: str) -> Tensor:
    """See ``transformer_ops.geglu``."""
    return _forward(a, b, _gelu(approximate))


def geglu_backward(grad_output: Tensor, a: Tensor, b: Tensor, approximate: str) -> tuple[Tensor, Tensor]:
    """The gradients of ``a`` and ``b``."""
    return _backward(grad_output, a, b, _gelu(approximate))
