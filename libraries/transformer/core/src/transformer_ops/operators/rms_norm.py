"""Root mean square normalisation, alone and after the addition of a residual."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor

from .checks import check_apart
from .invariance import ALWAYS, OF_ROWS, along, rows_of
from .means import Means, row_means, sharded_rows, sum_of_rows
from .precision import ROWS_UNDER_AUTOCAST, wide

MODES = ("llama", "gemma", "none")


def _rms_norm(
    x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, offset: float = 0.0, casting_mode: str = "llama"
) -> Tensor:
    return _normalised(row_means, x, weight, eps, offset, casting_mode)


def _normalised(means: Means, x: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str) -> Tensor:
    check_mode(casting_mode)
    values = wide(x)
    (square,) = means(values.pow(2))
    values = values * torch.rsqrt(square + eps)
    if weight is not None and casting_mode == "llama":
        return values.to(x.dtype) * (offset + weight)
    if weight is not None:
        values = values * (offset + wide(weight))
    return values.to(x.dtype)


def check_mode(casting_mode: str) -> None:
    """Refuse what is not one of :data:`MODES`."""
    if casting_mode not in MODES:
        raise ValueError(f"casting_mode is {casting_mode!r}, expected one of {', '.join(map(repr, MODES))}")


def _rms_norm_backward(
    grad_output: Tensor, x: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str
) -> tuple[Tensor, Tensor]:
    return _gradients(row_means, grad_output, x, weight, eps, offset, casting_mode)


def _gradients(
    means: Means,
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float,
    casting_mode: str,
) -> tuple[Tensor, Tensor]:
    d_x, d_weight = _wide_gradients(means, grad_output, x, weight, eps, offset, casting_mode)
    return d_x.to(x.dtype), d_weight


def _wide_gradients(
    means: Means,
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float,
    casting_mode: str,
) -> tuple[Tensor, Tensor]:
    """The gradient of x in the dtype that is computed in, and that of the weight."""
    check_mode(casting_mode)
    gradients, values = wide(grad_output), wide(x)
    weighted = gradients if weight is None else gradients * (offset + wide(weight))
    square, product = means(values.pow(2), weighted * values)
    r = torch.rsqrt(square + eps)
    d_x = r * (weighted - values * (product * r * r))
    if weight is None:
        return d_x, x.new_empty(0)
    normalised = values * r
    if casting_mode == "llama":
        normalised = wide(normalised.to(x.dtype))
    return d_x, sum_of_rows(gradients * normalised).to(weight.dtype)


def _fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
) -> tuple[Tensor, Tensor]:
    return _added(row_means, x, residual, weight, eps, offset, casting_mode)


def _added(
    means: Means, x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, offset: float, casting_mode: str
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return _normalised(means, total, weight, eps, offset, casting_mode), total


def _fused_add_rms_norm_in_place(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
) -> None:
    check_apart(residual, "residual", x, "x")
    normalised, total = _fused_add_rms_norm(x, residual, weight, eps, offset, casting_mode)
    x.copy_(normalised)
    residual.copy_(total)


def _fused_add_rms_norm_backward(
    grad_y: Tensor,
    grad_sum: Tensor,
    sum: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float,
    casting_mode: str,
) -> tuple[Tensor, Tensor]:
    return _gradients_of_added(row_means, grad_y, grad_sum, sum, weight, eps, offset, casting_mode)


def _gradients_of_added(
    means: Means,
    grad_y: Tensor,
    grad_sum: Tensor,
    sum: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float,
    casting_mode: str,
) -> tuple[Tensor, Tensor]:
    d_x, d_weight = _wide_gradients(means, grad_y, sum, weight, eps, offset, casting_mode)
    return (d_x + wide(grad_sum)).to(sum.dtype), d_weight


_SHARED = """
        weight: None, or a tensor of the last dimension's size and of the dtype of ``x``.
        eps: added to the mean of the squares.
        offset: added to the weight; 1.0 in Gemma, whose weights are stored around 0.
        casting_mode: where rounding to the dtype of ``x`` happens for 16-bit dtypes; all else is computed in float32.
            ``"llama"``: of the normalised value and of its product with the weight; ``"gemma"`` and ``"none"``: once,
            at the end."""

RMS_NORM = Operator(
    "rms_norm",
    reference=_rms_norm,
    rule=Rows(x=1),
    derivatives={"x, weight": "rms_norm_backward(grad, x, weight, eps, offset, casting_mode)"},
    sharded=sharded_rows("x=S(-1), weight=S(0) -> S(-1)", _normalised),
    invariant=OF_ROWS,
    autocast=ROWS_UNDER_AUTOCAST,
    doc=f"""Divide each row by its root mean square: ``x / sqrt(mean(x ** 2) + eps) * (offset + weight)``.

    The mean is over the last dimension (Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467).

    Args:
        x: tensor of at least one dimension; float16, bfloat16, float32 or float64.{_SHARED}
        out: None, or the tensor that the result is written into, of the shape and dtype of ``x``, which must not share
            memory with the other arguments. Without gradients.

    Returns:
        A tensor of the shape and dtype of ``x``; ``out`` where it is given.

    Raises:
        RuntimeError: a shape or dtype does not fit, ``casting_mode`` is none of these, or a tensor requires grad and
            ``out`` is given.
    """,
)
RMS_NORM_BACKWARD = Operator(
    "rms_norm_backward",
    reference=_rms_norm_backward,
    sharded=sharded_rows("x=S(-1), grad_output=S(-1), weight=S(0) -> S(-1), S(0)", _gradients),
    invariant=rows_of(("result0",), "grad_output", "x"),
)

FUSED_ADD_RMS_NORM = Operator(
    "fused_add_rms_norm",
    reference=_fused_add_rms_norm,
    rule=Rows(x=1, residual=1),
    derivatives={
        "(x, residual), weight": "fused_add_rms_norm_backward(grad_y, grad_sum, sum, weight, eps, offset, casting_mode)"
    },
    sharded=sharded_rows("x=S(-1), residual=S(-1), weight=S(0) -> S(-1), S(-1)", _added),
    invariant=OF_ROWS,
    doc=f"""Add a residual, then normalise: ``sum = x + residual``, ``y = rms_norm(sum)``, in one pass over memory.

    Args:
        x: tensor of at least one dimension; float16, bfloat16, float32 or float64.
        residual: tensor of the shape and dtype of ``x``.{_SHARED}

    Returns:
        ``(y, sum)``, of the shape and dtype of ``x``. ``sum`` is the residual of the next block.

    Raises:
        RuntimeError: a shape or dtype does not fit, or ``casting_mode`` is none of these.
    """,
)
FUSED_ADD_RMS_NORM_ = Operator(
    "fused_add_rms_norm_",
    reference=_fused_add_rms_norm_in_place,
    derivatives=None,
    invariant=ALWAYS | {"batch": along(-2, "x", "residual")},
    doc=f"""In place: ``residual`` becomes the sum, ``x`` the normalised sum. Without gradients.

    Args:
        x: tensor of at least one dimension; float16, bfloat16, float32 or float64. Overwritten.
        residual: tensor of the shape and dtype of ``x``. Overwritten.{_SHARED}

    Raises:
        RuntimeError: a shape or dtype does not fit, a tensor requires grad, or both are the same memory.
    """,
)
FUSED_ADD_RMS_NORM_BACKWARD = Operator(
    "fused_add_rms_norm_backward",
    reference=_fused_add_rms_norm_backward,
    sharded=sharded_rows("sum=S(-1), grad_y=S(-1), grad_sum=S(-1), weight=S(0) -> S(-1), S(0)", _gradients_of_added),
    invariant=rows_of(("result0",), "grad_y", "grad_sum", "sum"),
)
