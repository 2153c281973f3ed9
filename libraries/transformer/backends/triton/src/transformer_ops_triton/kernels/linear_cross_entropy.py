"""Cross entropy of a linear layer's results, which are made a few rows at a time: never are all logits in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import (
    FLOATING,
    check_device,
    check_dtype,
    check_rows,
    check_same,
    check_shape,
    check_written,
    refuse,
    rows_of,
    wide,
    write_back,
)
from .cross_entropy import Loss, of_rows, targets
from .language import elements, load, store
from .launch import block_of, compute_dtype, launch

ROWS = 1024  # of logits at a time: enough for the matrix products to be fast
BLOCK = 1024


class _Linear(NamedTuple):
    """The arguments, checked."""

    loss: Loss
    input: Tensor
    weight: Tensor
    target: Tensor
    bias: Tensor | None


def _checked(
    loss: Loss,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
) -> _Linear:
    check_dtype(input, "input", *FLOATING)
    check_shape(input, "input", -1, -1)
    check_same(weight, "weight", input, "input")
    check_shape(weight, "weight", -1, input.shape[1])
    classes = weight.shape[0]
    if bias is not None:
        check_same(bias, "bias", input, "input")
        check_shape(bias, "bias", classes)
    loss = loss.weighted(input, classes, class_weight, "class_weight", token_weight)
    return _Linear(loss, input, weight, targets(target, input, classes, loss.ignore_index), bias)


class _Rows(NamedTuple):
    """What the rows' logits give: their losses, and log(sum(exp)), ``(2, rows)``, which gradients need as well."""

    loss: Tensor
    lse: Tensor


class _Gradients(NamedTuple):
    """Of the inputs; the last is empty without a bias. Sums over rows are in the dtype that is computed in.

    All are to be multiplied by ``factor``, which is no part of them because 16-bit numbers would be too small: what
    arrives at the loss may be a large factor, made so that they are not.
    """

    input: Tensor
    weight: Tensor
    bias: Tensor
    factor: Tensor
    divisors: Tensor


def _parts(of: _Linear) -> Iterator[tuple[Loss, slice, Tensor, Tensor]]:
    """A few rows at a time: their loss, which rows they are, their inputs, and their logits."""
    for begin in range(0, len(of.input), ROWS):
        rows = slice(begin, begin + ROWS)
        x = of.input[rows]
        yield of.loss.rows(begin, begin + ROWS), rows, x, torch.nn.functional.linear(x, of.weight, of.bias)


def _new_rows(of: _Linear) -> _Rows:
    rows, dtype = len(of.input), wide(of.input.dtype)
    return _Rows(of.input.new_empty(rows, dtype=dtype), of.input.new_empty(2, rows, dtype=dtype))


def _new_gradients(of: _Linear, grad: Tensor | None, reduction: str) -> _Gradients:
    """Zeros, and what gradients of rows are divided by before they are rounded to 16 bits."""
    dtype = wide(of.input.dtype)
    counted = of.target != of.loss.ignore_index
    one = torch.ones((), dtype=dtype, device=of.input.device)
    largest = one
    # What the operator for training returns must not depend on the dtype.
    if of.loss.token_weight is not None if grad is None else dtype != of.input.dtype:
        of_rows = one if grad is None else grad
        of_rows = of_rows if of.loss.token_weight is None else of_rows * of.loss.token_weight
        largest = torch.cat((torch.where(counted, of_rows, 0).abs(), one.new_zeros(1))).amax()
        largest = torch.where((largest > 0) & largest.isfinite(), largest, 1)
    divisors = of.loss.divisors(of.target, of.input) if reduction == "mean" else torch.stack((one, one))
    factor = torch.where(counted.any(), largest / divisors[0], 0)
    return _Gradients(
        torch.empty_like(of.input, memory_format=torch.contiguous_format),
        of.weight.new_zeros(of.weight.shape, dtype=dtype),
        of.input.new_zeros(0 if of.bias is None else of.bias.shape, dtype=dtype),
        factor,
        torch.stack((largest, largest * (divisors[1] / divisors[0]))),
    )


def _add_part(
    to: _Gradients, of: _Linear, part: Loss, rows: slice, x: Tensor, logits: Tensor, lse: Tensor, grad: Tensor
) -> None:
    """The gradients of some rows, whose logits give way to theirs."""
    part.backward(grad, to.divisors, logits, of.target[rows], lse[:, rows], logits)
    torch.mm(logits, of.weight, out=to.input[rows])
    if to.weight.dtype == x.dtype:
        to.weight.addmm_(logits.t(), x)
    else:
        to.weight.add_(logits.t() @ x)
    if of.bias is not None:
        to.bias.add_(logits.sum(0, dtype=to.bias.dtype))


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum"):
        given = f"is '{reduction}', expected 'mean' or 'sum'; for 'none' there is linear_cross_entropy_rows"
        refuse("reduction", given)


def _total(of: _Linear, rows: _Rows, reduction: str) -> Tensor:
    divisors = of.loss.divisors(of.target, of.input) if reduction == "mean" else None
    return of.loss.total(rows.loss, rows.lse, of.target, divisors)


def _forward(of: _Linear) -> _Rows:
    results = _new_rows(of)
    for part, rows, _, logits in _parts(of):
        part.forward(logits, of.target[rows], results.loss[rows], results.lse[:, rows])
    return results


def fused_linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
    softcap: float,
    class_weight: Tensor | None = None,
    token_weight: Tensor | None = None,
) -> Tensor:
    """See ``transformer_ops.fused_linear_cross_entropy``."""
    _check_reduction(reduction)
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap)
    of = _checked(loss, input, weight, target, bias, class_weight, token_weight)
    return _total(of, _forward(of._replace(loss=of.loss.without_z())), reduction)


def fused_linear_cross_entropy_training(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    reduction: str,
    softcap: float,
    class_weight: Tensor | None = None,
    token_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The loss, its gradients by ``input``, ``weight`` and ``bias``, and their common factor."""
    _check_reduction(reduction)
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap)
    of = _checked(loss, input, weight, target, bias, class_weight, token_weight)
    results, gradients = _new_rows(of), _new_gradients(of, None, reduction)
    one = torch.ones_like(gradients.factor)
    for part, rows, x, logits in _parts(of):
        part.without_z().forward(logits, of.target[rows], results.loss[rows], results.lse[:, rows])
        _add_part(gradients, of, part, rows, x, logits, results.lse, one.expand(len(x)))
    d_input, d_weight, d_bias, factor, _ = gradients
    return _total(of, results, reduction), d_input, d_weight, d_bias, factor


def linear_cross_entropy_rows(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The loss of each row, and log(sum(exp)) and what it is rounded by."""
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap)
    results = _forward(_checked(loss, input, weight, target, bias, class_weight, token_weight))
    return results.loss, results.lse.flatten()


def linear_cross_entropy_backward(
    grad_loss: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    kept: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    class_weight: Tensor | None,
    token_weight: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the inputs from those of the rows, whatever they are: the logits are computed again."""
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap)
    of = _checked(loss, input, weight, target, bias, class_weight, token_weight)
    grad_loss = of_rows(grad_loss, "grad_loss", input)
    check_dtype(kept, "kept", grad_loss.dtype)
    check_device(kept, "kept", input, "input")
    check_shape(kept, "kept", 2 * len(input))
    lse = kept.contiguous().view(2, len(input))
    gradients = _new_gradients(of, grad_loss, "sum")
    for part, rows, x, logits in _parts(of):
        _add_part(gradients, of, part, rows, x, logits, lse, grad_loss[rows])
    d_input, d_weight, d_bias, factor, _ = gradients
    if d_weight.dtype == input.dtype:
        return d_input, d_weight, d_bias
    return scaled(d_input, factor, input), scaled(d_weight, factor, weight), (d_bias * factor).to(input.dtype)


@triton.jit
def _scaled(x, factor, y, columns, x_stride, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    row, at = elements(columns, BLOCK)
    mask = at < columns
    store(y + row * columns, at, mask, load(x + row * x_stride, at, mask, COMPUTE) * tl.load(factor))


def scaled(given: Tensor, factor: Tensor, like: Tensor) -> Tensor:
    """``x * factor``, a tensor of no dimensions, in the dtype of ``like``."""
    _check_scaled(given, factor, like)
    y = given.new_empty(given.shape, dtype=like.dtype)
    _write_scaled(rows_of(given), factor, y)
    return y


def scaled_(given: Tensor, factor: Tensor, like: Tensor) -> None:
    """The same into ``x``, which has the dtype of ``like``."""
    _check_scaled(given, factor, like)
    check_dtype(given, "x", like.dtype)
    check_written(given, "x", factor=factor)
    x = given.contiguous()  # a copy, where it is not
    _write_scaled(rows_of(x), factor, x)
    write_back(x, given)


def _check_scaled(given: Tensor, factor: Tensor, like: Tensor) -> None:
    check_rows(given, "x")
    check_dtype(like, "like", *FLOATING)
    check_device(like, "like", given, "x")
    check_shape(like, "like", *given.shape)
    check_dtype(given, "x", like.dtype, wide(like.dtype))
    check_dtype(factor, "factor", wide(like.dtype))
    check_shape(factor, "factor")
    check_device(factor, "factor", given, "x")


def _write_scaled(x: Tensor, factor: Tensor, y: Tensor) -> None:
    columns = x.shape[1]
    launch(
        _scaled,
        x.shape[0] * triton.cdiv(columns, BLOCK),
        x,
        x,
        factor,
        y,
        columns,
        x.stride(0),
        COMPUTE=compute_dtype(x.dtype),
        **block_of(BLOCK),
    )
