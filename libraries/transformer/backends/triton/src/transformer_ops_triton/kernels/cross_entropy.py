"""Cross entropy of rows of logits."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import FLOATING, check_device, check_dtype, check_indices, check_shape, refuse, rows_of, vector, wide
from .language import expm1, load, log1p, store, tanh
from .launch import block_of, compute_dtype, launch


@triton.jit
def _capped(x, SOFTCAP: tl.constexpr):
    # softcap * tanh(x / softcap), or x.
    if SOFTCAP > 0:
        x = SOFTCAP * tanh(x / SOFTCAP)
    return x


@triton.jit
def _cap_slope(x, SOFTCAP: tl.constexpr):
    # The cap's derivative, 1 - tanh(x / softcap)^2, as 4 s (1 - s): the difference would leave nothing of a logit far
    # beyond the cap.
    s = tl.sigmoid(-2 * tl.abs(x / SOFTCAP))
    return 4 * s * (1 - s)


@triton.jit
def _finite(x):
    # 0 for an infinity, whose difference from itself is no number.
    return tl.where(tl.abs(x) == float("inf"), 0, x)


@triton.jit(do_not_specialize=["ignore_index"])
def _cross_entropy(
    x,
    weight,
    target,
    loss,
    z_loss,
    lse,
    lse_rest,
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
        tl.store(lse_rest + row, zero)
        return
    is_class = (t >= 0) & (t < N)
    chosen = _capped(tl.load(x + t, mask=is_class, other=float("nan")).to(COMPUTE), SOFTCAP)
    near = _finite(chosen)  # what logits are near to: sums of their distances from it are small
    # One pass: what has been summed up is scaled anew when a larger logit comes. The target's own exp is left out of
    # the sum of the others, and added by log1p: it would hide them, and with them the loss, where it is nearly all.
    largest = tl.full([], -float("inf"), COMPUTE)
    others = tl.full([], 0, COMPUTE)
    values = tl.zeros([BLOCK], COMPUTE)
    weights = tl.zeros([BLOCK], COMPUTE)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        value = _capped(load(x, at, mask, COMPUTE), SOFTCAP)
        before = largest
        largest = tl.maximum(largest, tl.max(tl.where(mask, value, -float("inf")), 0))
        shift = _finite(largest)
        exps = tl.where(mask & (at != t), tl.exp(value - shift), 0)
        others = others * tl.exp(before - shift) + tl.sum(exps, 0)
        if SMOOTHING > 0:
            if weight is None:
                values += tl.where(mask, value - near, 0)
            else:
                w = load(weight, at, mask, COMPUTE)
                values += w * tl.where(mask, value - near, 0)
                weights += w
    # Logits may be large and close together: of the largest of them and the small rest, only the sum is rounded.
    top = _finite(largest)
    own_less_one = tl.where(is_class, expm1(chosen - top), -1)  # a class that does not exist adds nothing
    log_total = log1p(others + own_less_one)
    z = top + log_total
    result = ((top - chosen) + log_total) * (1 - SMOOTHING)
    if weight is not None:
        result *= tl.load(weight + t, mask=is_class, other=0).to(COMPUTE)
    if SMOOTHING > 0:
        from_near = (top - near) + log_total
        if weight is None:
            result += SMOOTHING * (from_near - tl.sum(values, 0) / N)
        else:
            result += SMOOTHING / N * (from_near * tl.sum(weights, 0) - tl.sum(values, 0))
    of_z = LSE_SQUARE_SCALE * z * z
    tl.store(loss + row, result + of_z)
    tl.store(z_loss + row, of_z)
    tl.store(lse + row, z)
    tl.store(lse_rest + row, (top - z) + log_total)


@triton.jit(do_not_specialize=["ignore_index"])
def _cross_entropy_backward(
    grad,
    grad_z,
    x,
    weight,
    weight_sum,
    target,
    lse,
    lse_rest,
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
    # With p = exp(x - z): dx = grad (p (w[t] (1 - smoothing) + smoothing / n sum(w)) - w[t] (1 - smoothing) [k = t]
    # - smoothing / n w) + (grad + grad_z) 2 lse_square_scale z p, times the derivative of the cap. dx may be x.
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
    z_rest = tl.load(lse_rest + row)
    g = tl.load(grad + row * grad_stride)
    of_z = g
    if grad_z is not None:
        of_z += tl.load(grad_z + row)
    chosen = tl.full([], 1 - SMOOTHING, COMPUTE)
    sum_of_weights = tl.full([], N, COMPUTE)
    if weight is not None:
        chosen *= tl.load(weight + t, mask=(t >= 0) & (t < N), other=0).to(COMPUTE)
        sum_of_weights = tl.load(weight_sum)
    of_others = g * (SMOOTHING / N * sum_of_weights) + of_z * (2 * LSE_SQUARE_SCALE) * z
    of_p = g * chosen + of_others
    # The target's own, where p - 1 is expm1(log(p)): a difference would leave nothing where p is nearly 1.
    own_logit = tl.load(x + t, mask=(t >= 0) & (t < N), other=0).to(COMPUTE)
    own_log_p = (_capped(own_logit, SOFTCAP) - z) - z_rest
    own = g * chosen * expm1(own_log_p) + of_others * tl.exp(own_log_p)
    if SMOOTHING > 0:
        own_weight = tl.full([], 1, COMPUTE)
        if weight is not None:
            own_weight = tl.load(weight + t, mask=(t >= 0) & (t < N), other=0).to(COMPUTE)
        own -= g * (SMOOTHING / N) * own_weight
    if SOFTCAP > 0:
        own *= _cap_slope(own_logit, SOFTCAP)
    tl.debug_barrier()  # all have read that logit, before one of them writes where it is
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        value = load(x, at, mask, COMPUTE)
        d = tl.exp((_capped(value, SOFTCAP) - z) - z_rest) * of_p
        if SMOOTHING > 0:
            if weight is None:
                d -= g * (SMOOTHING / N)
            else:
                d -= g * (SMOOTHING / N) * load(weight, at, mask, COMPUTE)
        if SOFTCAP > 0:
            d *= _cap_slope(value, SOFTCAP)
        store(dx, at, mask, tl.where(at == t, own, d))


class Loss(NamedTuple):
    """What the loss of a row depends on, apart from its logits; ``weight`` has been checked."""

    ignore_index: int
    lse_square_scale: float
    label_smoothing: float
    softcap: float
    weight: Tensor | None = None

    def check(self) -> None:
        """Refuse what has no meaning."""
        if not 0 <= self.label_smoothing <= 1:
            refuse("label_smoothing", f"is {self.label_smoothing:g}, expected 0 to 1")
        if not 0 <= self.softcap < inf:
            refuse("softcap", f"is {self.softcap:g}, expected a positive number, or 0 for none")

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

    def forward(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of ``(rows, classes)``, in whose rows elements follow each other.

        Returns:
            The loss, the z-loss, log(sum(exp)), and what that is rounded by.
        """
        rows = logits.shape[0]
        results = torch.empty(4, rows, dtype=wide(logits.dtype), device=logits.device).unbind()
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
        loss, z_loss, lse, lse_rest = results
        return loss, z_loss, lse, lse_rest

    def backward(
        self,
        grad: Tensor,
        grad_z: Tensor | None,
        logits: Tensor,
        target: Tensor,
        lse: Tensor,
        lse_rest: Tensor,
        dx: Tensor,
    ) -> None:
        """Write the gradient of the logits, maybe in their place; ``grad`` may be one number, expanded."""
        weight_sum = None if self.weight is None else self.weight.sum(dtype=wide(logits.dtype))
        launch(
            _cross_entropy_backward,
            logits.shape[0],
            logits,
            grad,
            grad_z,
            logits,
            self.weight,
            weight_sum,
            target,
            lse,
            lse_rest,
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
    loss.check()
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of each row, the part of it that ``lse_square_scale`` adds, log(sum(exp)), and what it is rounded by."""
    loss, classes = _checked(input, target, weight, Loss(ignore_index, lse_square_scale, label_smoothing, softcap))
    return loss.forward(rows_of(input), classes)


def cross_entropy_backward(
    grad_loss: Tensor,
    grad_z_loss: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    lse: Tensor,
    lse_rest: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
) -> Tensor:
    """The gradient of the logits."""
    loss, classes = _checked(input, target, weight, Loss(ignore_index, lse_square_scale, label_smoothing, softcap))
    for tensor, name in ((grad_loss, "grad_loss"), (grad_z_loss, "grad_z_loss"), (lse, "lse"), (lse_rest, "lse_rest")):
        check_dtype(tensor, name, wide(input.dtype))
        check_device(tensor, name, input, "input")
        check_shape(tensor, name, input.shape[0])
    dx = input.new_empty(input.shape)
    kept = lse.contiguous(), lse_rest.contiguous()
    loss.backward(grad_loss, grad_z_loss.contiguous(), rows_of(input), classes, *kept, dx)
    return dx
