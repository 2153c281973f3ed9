"""Cross entropy of rows of logits."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import FLOATING, check_device, check_dtype, check_indices, check_shape, rows_of, vector, wide
from .language import load, store
from .launch import block_of, compute_dtype, launch


@triton.jit
def _capped(x, SOFTCAP: tl.constexpr):
    # softcap * tanh(x / softcap) with tanh(u) = 2 sigmoid(2 u) - 1, or x.
    if SOFTCAP > 0:
        x = SOFTCAP * (2 * tl.sigmoid(x * (2 / SOFTCAP)) - 1)
    return x


@triton.jit
def _finite(x):
    # 0 for an infinity, whose difference from itself is no number.
    return tl.where(tl.abs(x) == float("inf"), 0, x)


@triton.jit
def _cross_entropy(
    x,
    weight,
    target,
    loss,
    z_loss,
    lse,
    x_stride,
    ignore_index,
    N: tl.constexpr,
    LSE_SQUARE_SCALE: tl.constexpr,
    SMOOTHING: tl.constexpr,
    SOFTCAP: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # With z = log(sum(exp(x))) and t the target, for one row:
    #   loss = w[t] (1 - smoothing) (z - x[t]) + smoothing / n sum(w (z - x)) + lse_square_scale z^2
    # where w, the weights of classes, is 1 for all if there is none; the last term is in z_loss, too.
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    t = tl.load(target + row)
    if t == ignore_index:
        zero = tl.full([], 0, COMPUTE)
        tl.store(loss + row, zero)
        tl.store(z_loss + row, zero)
        tl.store(lse + row, zero)
        return
    # One pass: what has been summed up is scaled anew when a larger logit comes.
    largest = tl.full([], -float("inf"), COMPUTE)
    total = tl.full([], 0, COMPUTE)
    values = tl.zeros([BLOCK], COMPUTE)
    weights = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        value = _capped(load(x, at, mask, COMPUTE), SOFTCAP)
        before = largest
        largest = tl.maximum(largest, tl.max(tl.where(mask, value, -float("inf")), 0))
        shift = _finite(largest)
        exps = tl.where(mask, tl.exp(value - shift), 0)
        total = total * tl.exp(before - shift) + tl.sum(exps, 0)
        if SMOOTHING > 0:
            if weight is None:
                values += tl.where(mask, value, 0)
            else:
                w = load(weight, at, mask, COMPUTE)
                values += w * tl.where(mask, value, 0)
                weights += w
    z = _finite(largest) + tl.log(total)
    result = z - _capped(tl.load(x + t).to(COMPUTE), SOFTCAP)
    result *= 1 - SMOOTHING
    if weight is not None:
        result *= tl.load(weight + t).to(COMPUTE)
    if SMOOTHING > 0:
        if weight is None:
            result += SMOOTHING * (z - tl.sum(values, 0) / N)
        else:
            result += SMOOTHING / N * (z * tl.sum(weights, 0) - tl.sum(values, 0))
    of_z = LSE_SQUARE_SCALE * z * z
    tl.store(loss + row, result + of_z)
    tl.store(z_loss + row, of_z)
    tl.store(lse + row, z)


@triton.jit
def _cross_entropy_backward(
    grad,
    x,
    weight,
    weight_sum,
    target,
    lse,
    dx,
    grad_stride,
    x_stride,
    dx_stride,
    ignore_index,
    N: tl.constexpr,
    LSE_SQUARE_SCALE: tl.constexpr,
    SMOOTHING: tl.constexpr,
    SOFTCAP: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # With p = exp(x - z): dx = grad (p (w[t] (1 - smoothing) + smoothing / n sum(w) + 2 lse_square_scale z)
    # - w[t] (1 - smoothing) [k = t] - smoothing / n w), times the derivative of the cap. dx may be x.
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    dx += row * dx_stride
    t = tl.load(target + row)
    if t == ignore_index:
        for start in range(0, N, BLOCK):
            at = start + tl.arange(0, BLOCK)
            store(dx, at, at < N, tl.zeros([BLOCK], COMPUTE))
        return
    z = tl.load(lse + row)
    g = tl.load(grad + row * grad_stride)
    chosen = tl.full([], 1 - SMOOTHING, COMPUTE)
    sum_of_weights = tl.full([], N, COMPUTE)
    if weight is not None:
        chosen *= tl.load(weight + t).to(COMPUTE)
        sum_of_weights = tl.load(weight_sum)
    of_p = chosen + SMOOTHING / N * sum_of_weights + 2 * LSE_SQUARE_SCALE * z
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        value = _capped(load(x, at, mask, COMPUTE), SOFTCAP)
        d = tl.exp(value - z) * of_p - tl.where(at == t, chosen, 0)
        if SMOOTHING > 0:
            if weight is None:
                d -= SMOOTHING / N
            else:
                d -= SMOOTHING / N * load(weight, at, mask, COMPUTE)
        if SOFTCAP > 0:
            d *= 1 - (value / SOFTCAP) * (value / SOFTCAP)
        store(dx, at, mask, g * d)


class Loss(NamedTuple):
    """What the loss of a row depends on, apart from its logits; ``weight`` has been checked."""

    ignore_index: int
    lse_square_scale: float
    label_smoothing: float
    softcap: float
    weight: Tensor | None = None

    def constants(self, logits: Tensor) -> dict[str, object]:
        """What both kernels are compiled for."""
        return {
            "N": logits.shape[1],
            "LSE_SQUARE_SCALE": self.lse_square_scale,
            "SMOOTHING": self.label_smoothing,
            "SOFTCAP": self.softcap,
            "COMPUTE": compute_dtype(logits.dtype),
            **block_of(logits.shape[1]),
        }

    def forward(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``(rows, classes)``, whose rows have their elements one after the other: loss, z-loss and log(sum(exp))."""
        rows = logits.shape[0]
        results = torch.empty(3, rows, dtype=wide(logits.dtype), device=logits.device).unbind()
        launch(
            _cross_entropy,
            rows,
            logits,
            logits,
            self.weight,
            target,
            *results,
            logits.stride(0),
            self.ignore_index,
            **self.constants(logits),
        )
        return results[0], results[1], results[2]

    def backward(self, grad: Tensor, logits: Tensor, target: Tensor, lse: Tensor, dx: Tensor) -> None:
        """Write the gradient of the logits, maybe in their place; ``grad`` may be one number, expanded."""
        weight_sum = None if self.weight is None else self.weight.sum(dtype=wide(logits.dtype))
        launch(
            _cross_entropy_backward,
            logits.shape[0],
            logits,
            grad,
            logits,
            self.weight,
            weight_sum,
            target,
            lse,
            dx,
            grad.stride(0),
            logits.stride(0),
            dx.stride(0),
            self.ignore_index,
            **self.constants(logits),
        )


def targets(given: Tensor, input: Tensor, classes: int, ignore_index: int) -> Tensor:
    """The right classes of the rows of ``input``, contiguous, after a check that they are classes."""
    check_dtype(given, "target", torch.int64)
    check_device(given, "target", input, "input")
    check_shape(given, "target", input.shape[0])
    check_indices(given, "target", classes, "class", except_for=ignore_index)
    return given.contiguous()


def _checked(input: Tensor, target: Tensor, weight: Tensor | None, loss: Loss) -> tuple[Loss, Tensor]:
    """The loss with the weight, and the targets."""
    check_dtype(input, "input", *FLOATING)
    check_shape(input, "input", -1, -1)
    weighted = loss._replace(weight=vector(weight, "weight", input, "input"))
    return weighted, targets(target, input, input.shape[1], loss.ignore_index)


def cross_entropy_rows(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row, the part of it that ``lse_square_scale`` adds, and log(sum(exp)) of its logits."""
    loss, classes = _checked(input, target, weight, Loss(ignore_index, lse_square_scale, label_smoothing, softcap))
    return loss.forward(rows_of(input), classes)


def cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
) -> Tensor:
    """The gradient of the logits."""
    loss, classes = _checked(input, target, weight, Loss(ignore_index, lse_square_scale, label_smoothing, softcap))
    for tensor, name in ((grad, "grad"), (lse, "lse")):
        check_dtype(tensor, name, wide(input.dtype))
        check_device(tensor, name, input, "input")
        check_shape(tensor, name, input.shape[0])
    dx = input.new_empty(input.shape)
    loss.backward(grad, rows_of(input), classes, lse.contiguous(), dx)
    return dx
