"""Root mean square normalisation, alone and after the addition of a residual."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from .arguments import (
    check_apart,
    check_like,
    check_out,
    check_rows,
    check_written,
    refuse,
    rows_of,
    vector,
    wide,
    write_back,
)
from .language import load, rounded, store, weighted
from .launch import block_of, compute_dtype, launch
from .weight_gradients import weight_gradients


@triton.jit
def _added(x, residual, at, mask, COMPUTE: tl.constexpr):
    # The sum, as it is kept.
    value = load(x, at, mask, COMPUTE)
    if residual is not None:
        value = rounded(value + load(residual, at, mask, COMPUTE), x.dtype.element_ty).to(COMPUTE)
    return value


@triton.jit
def _rms_norm(
    x,
    residual,
    weight,
    y,
    total,
    x_stride,
    residual_stride,
    y_stride,
    total_stride,
    N: tl.constexpr,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    ROUNDS_FIRST: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    y += row * y_stride
    if residual is not None:
        residual += row * residual_stride
        total += row * total_stride
    squares = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = _added(x, residual, at, at < N, COMPUTE)
        squares += value * value
    r = tl.rsqrt(tl.sum(squares, 0) / N + EPS)
    # Nothing is written before: in place, x is y and the residual the sum.
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        value = _added(x, residual, at, mask, COMPUTE)
        if residual is not None:
            store(total, at, mask, value)
        value *= r
        if weight is not None:
            factor = load(weight, at, mask, COMPUTE) + OFFSET
            if ROUNDS_FIRST:
                value = rounded(value, x.dtype.element_ty).to(COMPUTE)
                factor = rounded(factor, x.dtype.element_ty).to(COMPUTE)
            value *= factor
        store(y, at, mask, value)


@triton.jit
def _rms_norm_backward(
    grad,
    x,
    weight,
    more,
    dx,
    scale,
    grad_stride,
    x_stride,
    more_stride,
    N: tl.constexpr,
    EPS: tl.constexpr,
    OFFSET: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # With m = grad * (offset + weight) and r the reciprocal of the root mean square, which is kept in `scale`:
    # dx = r * (m - x * r^2 * mean(m * x)) + more
    row = tl.program_id(0).to(tl.int64)
    grad += row * grad_stride
    x += row * x_stride
    dx += row * N
    squares = tl.zeros([BLOCK], COMPUTE)
    products = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        value = load(x, at, mask, COMPUTE)
        m = weighted(grad, weight, at, mask, OFFSET, COMPUTE)
        squares += value * value
        products += m * value
    r = tl.rsqrt(tl.sum(squares, 0) / N + EPS)
    inner = tl.sum(products, 0) / N * r * r
    tl.store(scale + row, r)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        m = weighted(grad, weight, at, mask, OFFSET, COMPUTE)
        gradient = r * (m - load(x, at, mask, COMPUTE) * inner)
        if more is not None:
            gradient += load(more + row * more_stride, at, mask, COMPUTE)
        store(dx, at, mask, gradient)


class _Settings(NamedTuple):
    """What is the same for all rows; ``weight`` has been checked against ``x``."""

    weight: Tensor | None
    eps: float
    offset: float
    rounds_first: bool

    @classmethod
    def of(
        cls, x: Tensor, x_name: str, weight: Tensor | None, eps: float, offset: float, casting_mode: str
    ) -> _Settings:
        """Those of an operator's call, checked; ``x`` is checked, too."""
        check_rows(x, x_name)
        if casting_mode not in ("llama", "gemma", "none"):
            refuse("casting_mode", f"is '{casting_mode}', expected 'llama', 'gemma' or 'none'")
        return cls(vector(weight, "weight", x, x_name), eps, offset, casting_mode == "llama")


def _launch(x: Tensor, residual: Tensor | None, y: Tensor, total: Tensor | None, settings: _Settings) -> None:
    """All of ``(rows, length)``."""
    rows, length = x.shape
    launch(
        _rms_norm,
        rows,
        x,
        x,
        residual,
        settings.weight,
        y,
        total,
        x.stride(0),
        0 if residual is None else residual.stride(0),
        y.stride(0),
        0 if total is None else total.stride(0),
        N=length,
        EPS=settings.eps,
        OFFSET=settings.offset,
        ROUNDS_FIRST=settings.rounds_first,
        COMPUTE=compute_dtype(x.dtype),
        **block_of(length),
    )


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str) -> Tensor:
    """See ``transformer_ops.rms_norm``."""
    settings = _Settings.of(x, "x", weight, eps, offset, casting_mode)
    y = x.new_empty(x.shape)
    _launch(rows_of(x), None, rows_of(y), None, settings)
    return y


def rms_norm_out(
    x: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str, *, out: Tensor
) -> None:
    """See ``transformer_ops.rms_norm``."""
    settings = _Settings.of(x, "x", weight, eps, offset, casting_mode)
    check_out(out, x, "x", weight=weight)
    y = rows_of(out)
    _launch(rows_of(x), None, y, None, settings)
    write_back(y, out)


def fused_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str
) -> tuple[Tensor, Tensor]:
    """See ``transformer_ops.fused_add_rms_norm``."""
    settings = _Settings.of(x, "x", weight, eps, offset, casting_mode)
    check_like(residual, "residual", x, "x")
    y, total = x.new_empty(x.shape), x.new_empty(x.shape)
    _launch(rows_of(x), rows_of(residual), rows_of(y), rows_of(total), settings)
    return y, total


def fused_add_rms_norm_(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str
) -> None:
    """See ``transformer_ops.fused_add_rms_norm_``."""
    settings = _Settings.of(x, "x", weight, eps, offset, casting_mode)
    check_like(residual, "residual", x, "x")
    check_written(x, "x", weight=weight)
    check_written(residual, "residual", weight=weight)
    check_apart(residual, "residual", x, "x")
    y, total = rows_of(x), rows_of(residual)  # copies where rows are not views
    _launch(y, total, y, total, settings)
    write_back(y, x)
    write_back(total, residual)


def rms_norm_backward(
    grad_output: Tensor, x: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str
) -> tuple[Tensor, Tensor]:
    """The gradients of ``x`` and ``weight``; the latter is empty where there is none."""
    settings = _Settings.of(x, "x", weight, eps, offset, casting_mode)
    check_like(grad_output, "grad_output", x, "x")
    return _backward(grad_output, None, x, settings)


def fused_add_rms_norm_backward(
    grad_y: Tensor,
    grad_sum: Tensor,
    sum: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float,
    casting_mode: str,
) -> tuple[Tensor, Tensor]:
    """The gradients of either input and of ``weight``; the latter is empty where there is none."""
    settings = _Settings.of(sum, "sum", weight, eps, offset, casting_mode)
    check_like(grad_y, "grad_y", sum, "sum")
    check_like(grad_sum, "grad_sum", sum, "sum")
    return _backward(grad_y, grad_sum, sum, settings)


def _backward(
    given_grad: Tensor, given_more: Tensor | None, given: Tensor, settings: _Settings
) -> tuple[Tensor, Tensor]:
    grad, x = rows_of(given_grad), rows_of(given)
    more = None if given_more is None else rows_of(given_more)
    rows, length = x.shape
    dx = given.new_empty(given.shape)
    scale = given.new_empty(rows, dtype=wide(x.dtype))
    launch(
        _rms_norm_backward,
        rows,
        x,
        grad,
        x,
        settings.weight,
        more,
        dx,
        scale,
        grad.stride(0),
        x.stride(0),
        0 if more is None else more.stride(0),
        N=length,
        EPS=settings.eps,
        OFFSET=settings.offset,
        COMPUTE=compute_dtype(x.dtype),
        **block_of(length),
    )
    if settings.weight is None:
        return dx, given.new_empty(0)
    (d_weight,) = weight_gradients(grad, x, scale, rounds_first=settings.rounds_first)
    return dx, d_weight
