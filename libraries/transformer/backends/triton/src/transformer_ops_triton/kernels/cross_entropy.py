"""Cross entropy of rows of logits."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import (
    FLOATING,
    check_device,
    check_dtype,
    check_indices,
    check_same,
    check_shape,
    refuse,
    rows_of,
    wide,
)
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
    token_weight,
    target,
    loss,
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
    # where w, the weights of classes, is 1 for all if there is none. All of it is multiplied
    # by the weight of the token.
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    t = tl.load(target + row)
    if t == ignore_index:
        zero = tl.full([], 0, COMPUTE)
        tl.store(loss + row, zero)
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
        result *= tl.load(weight + t, mask=is_class, other=0)
    if SMOOTHING > 0:
        from_near = (top - near) + log_total
        if weight is None:
            result += SMOOTHING * (from_near - tl.sum(values, 0) / N)
        else:
            result += SMOOTHING / N * (from_near * tl.sum(weights, 0) - tl.sum(values, 0))
    result += LSE_SQUARE_SCALE * z * z
    if token_weight is not None:
        result *= tl.load(token_weight + row)
    tl.store(loss + row, result)
    tl.store(lse + row, z)
    tl.store(lse_rest + row, (top - z) + log_total)


@triton.jit(do_not_specialize=["ignore_index"])
def _cross_entropy_backward(
    grad,
    divisors,
    x,
    weight,
    weight_sum,
    token_weight,
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
    # With p = exp(x - z): dx = g (p (w[t] (1 - smoothing) + smoothing / n sum(w)) - w[t] (1 - smoothing) [k = t]
    # - smoothing / n w) + of_z 2 lse_square_scale z p, times the derivative of the cap; g and of_z are grad times the
    # weight of the token, each divided by its divisor. dx may be x.
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
    if token_weight is not None:
        g *= tl.load(token_weight + row)
    of_z = g
    if divisors is not None:
        g = g / tl.load(divisors)
        of_z = of_z / tl.load(divisors + 1)
    chosen = tl.full([], 1 - SMOOTHING, COMPUTE)
    sum_of_weights = tl.full([], N, COMPUTE)
    if weight is not None:
        chosen *= tl.load(weight + t, mask=(t >= 0) & (t < N), other=0)
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
            own_weight = tl.load(weight + t, mask=(t >= 0) & (t < N), other=0)
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
    """What the loss of a row depends on, apart from its logits and target; the weights have been checked."""

    ignore_index: int
    lse_square_scale: float
    label_smoothing: float
    softcap: float
    weight: Tensor | None = None  # of classes, in the dtype that is computed in
    token_weight: Tensor | None = None  # of rows, in the same

    def check(self) -> None:
        """Refuse what has no meaning."""
        if not 0 <= self.label_smoothing <= 1:
            refuse("label_smoothing", f"is {self.label_smoothing:g}, expected 0 to 1")
        if not 0 <= self.softcap < inf:
            refuse("softcap", f"is {self.softcap:g}, expected a positive number, or 0 for none")

    def weighted(
        self, input: Tensor, classes: int, weight: Tensor | None, name: str, token_weight: Tensor | None
    ) -> Loss:
        """The same with weights, after a check of all that is not a tensor of rows."""
        self.check()
        if weight is not None:
            if weight.dtype == wide(input.dtype):
                check_device(weight, name, input, "input")
            else:
                check_same(weight, name, input, "input")
            check_shape(weight, name, classes)
            weight = weight.to(wide(input.dtype)).contiguous()
        if token_weight is not None:
            token_weight = of_rows(token_weight, "token_weight", input)
        return self._replace(weight=weight, token_weight=token_weight)

    def rows(self, begin: int, end: int) -> Loss:
        """Of a part of the rows."""
        part = None if self.token_weight is None else self.token_weight[begin:end]
        return self._replace(token_weight=part)

    def divisors(self, target: Tensor, like: Tensor) -> Tensor:
        """What a mean divides the cross entropies by, and the z-losses, in the dtype that ``like`` is computed in."""
        counted = target != self.ignore_index
        tokens = counted.to(wide(like.dtype))
        if self.token_weight is not None:
            tokens = torch.where(counted, self.token_weight, 0)
        weights = tokens if self.weight is None else tokens * self.weight[torch.where(counted, target, 0)]
        return torch.stack((weights.sum(), tokens.sum()))

    def without_z(self) -> Loss:
        """Of the cross entropy alone: z-losses of a mean have a divisor of their own."""
        return self._replace(lse_square_scale=0.0)

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

    def forward(self, logits: Tensor, target: Tensor, loss: Tensor, lse: Tensor) -> None:
        """Of ``(rows, classes)``, in whose rows elements follow each other.

        Args:
            logits: of the rows.
            target: of the rows.
            loss: ``(rows,)``, which is written.
            lse: ``(2, rows)``, where log(sum(exp)) and what that is rounded by are written.
        """
        launch(
            _cross_entropy,
            logits.shape[0],
            logits,
            logits,
            self.weight,
            self.token_weight,
            target,
            loss,
            *lse.unbind(),
            logits.stride(0),
            self.ignore_index,
            **self.constants(logits),
        )

    def total(self, row_loss: Tensor, lse: Tensor, target: Tensor, divisors: Tensor | None) -> Tensor:
        """The loss of all rows, from their cross entropies without z-losses; a mean where there are divisors."""
        z = self.lse_square_scale * lse[0].square()  # 0 of rows that do not count
        if self.token_weight is not None:
            z = torch.where(target != self.ignore_index, z * self.token_weight, 0)
        if divisors is None:
            return row_loss.sum() + z.sum()
        return row_loss.sum() / divisors[0] + z.sum() / divisors[1]

    def backward(
        self, grad: Tensor, divisors: Tensor | None, logits: Tensor, target: Tensor, lse: Tensor, dx: Tensor
    ) -> None:
        """Write the gradient of the logits, maybe in their place; ``grad`` may be one number, expanded."""
        weight_sum = None if self.weight is None else self.weight.sum()
        launch(
            _cross_entropy_backward,
            logits.shape[0],
            logits,
            grad,
            divisors,
            logits,
            self.weight,
            weight_sum,
            self.token_weight,
            target,
            *lse.unbind(),
            dx,
            grad.stride(0),
            logits.stride(0),
            dx.stride(0),
            self.ignore_index,
            **self.constants(logits),
        )


def of_rows(given: Tensor, name: str, input: Tensor) -> Tensor:
    """One number of the dtype that is computed in for each row of ``input``, contiguous, after a check."""
    check_dtype(given, name, wide(input.dtype))
    check_device(given, name, input, "input")
    check_shape(given, name, input.shape[0])
    return given.contiguous()


def targets(given: Tensor, input: Tensor, classes: int, ignore_index: int) -> Tensor:
    """The right classes of the rows of ``input``, contiguous, after a check that they are classes."""
    check_dtype(given, "target", torch.int64)
    check_device(given, "target", input, "input")
    check_shape(given, "target", input.shape[0])
    check_indices(given, "target", classes, "class", except_for=ignore_index)
    return given.contiguous()


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        refuse("reduction", f"is '{reduction}', expected 'mean', 'sum' or 'none'")


def cross_entropy_rows(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str = "none",
    token_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss; log(sum(exp)) of each row, what that is rounded by, and what a mean divides by."""
    check_dtype(input, "input", *FLOATING)
    check_shape(input, "input", -1, -1)
    _check_reduction(reduction)
    rows, classes = input.shape
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap).weighted(
        input, classes, weight, "weight", token_weight
    )
    target = targets(target, input, classes, ignore_index)
    kept = input.new_empty(_kept(rows, reduction), dtype=wide(input.dtype))
    row_loss, lse = torch.empty_like(kept[:rows]), kept[: 2 * rows].view(2, rows)
    loss_of_rows = loss if reduction == "none" else loss.without_z()
    loss_of_rows.forward(rows_of(input), target, row_loss, lse)
    if reduction == "none":
        return row_loss, kept
    divisors = None
    if reduction == "mean":
        divisors = kept[2 * rows :].copy_(loss.divisors(target, input))
    return loss.total(row_loss, lse, target, divisors), kept


def _kept(rows: int, reduction: str) -> int:
    """How many numbers are kept for the gradient."""
    return 2 * rows + (2 if reduction == "mean" else 0)


def cross_entropy_backward(
    grad_loss: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    kept: Tensor,
    ignore_index: int,
    lse_square_scale: float,
    label_smoothing: float,
    softcap: float,
    reduction: str,
    token_weight: Tensor | None,
) -> Tensor:
    """The gradient of the logits."""
    check_dtype(input, "input", *FLOATING)
    check_shape(input, "input", -1, -1)
    _check_reduction(reduction)
    rows, classes = input.shape
    for tensor, name, shape in (
        (grad_loss, "grad_loss", (rows,) if reduction == "none" else ()),
        (kept, "kept", (_kept(rows, reduction),)),
    ):
        check_dtype(tensor, name, wide(input.dtype))
        check_device(tensor, name, input, "input")
        check_shape(tensor, name, *shape)
    loss = Loss(ignore_index, lse_square_scale, label_smoothing, softcap).weighted(
        input, classes, weight, "weight", token_weight
    )
    target = targets(target, input, classes, ignore_index)
    dx, kept = input.new_empty(input.shape), kept.contiguous()
    divisors = kept[2 * rows :] if reduction == "mean" else None
    lse = kept[: 2 * rows].view(2, rows)
    loss.backward(grad_loss.expand(rows), divisors, rows_of(input), target, lse, dx)
    return dx
