"""Cross entropy of a linear layer's results, which are never in memory all at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from opwheel import Operator, Rows
from opwheel.dispatch import ErrorSample, Sample
from torch import Tensor

from .checks import check_shape
from .cross_entropy import cross_entropy_backward_reference, cross_entropy_rows_reference
from .samples import SHAPES, confident_rows, randn, wide


def _fused_linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float = 0.0,
) -> Tensor:
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}, expected 'mean' or 'sum'")
    logits = torch.nn.functional.linear(input, weight, bias)
    rows = cross_entropy_rows_reference(logits, target, None, ignore_index, lse_square_scale, label_smoothing, softcap)
    return rows[0].sum() / ((target != ignore_index).sum() if reduction == "mean" else 1)


def _fused_linear_cross_entropy_training(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    options = (ignore_index, lse_square_scale, label_smoothing)
    loss = _fused_linear_cross_entropy(input, weight, target, bias, *options, reduction, softcap)
    logits = torch.nn.functional.linear(input, weight, bias)
    _, _, lse, rest = cross_entropy_rows_reference(logits, target, None, *options, softcap)
    grad, grad_z = torch.ones_like(lse), torch.zeros_like(lse)
    d = cross_entropy_backward_reference(grad, grad_z, logits, target, None, lse, rest, *options, softcap)
    d_bias = wide(input.new_empty(0)) if bias is None else wide(d).sum(0)
    counted = (target != ignore_index).sum().to(loss.dtype)
    factor = torch.where(counted > 0, 1 / counted, 0) if reduction == "mean" else torch.ones_like(loss)
    return loss, d @ weight, wide(d.t() @ input), d_bias, factor


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    target = torch.tensor([1, 0, -100, 4, 2], device=device)
    yield Sample(make(5, 8), make(7, 8), target)
    yield Sample(make(5, 8), make(7, 8), target, make(7), -100, 1e-2, 0.1, "sum")
    yield Sample(make(5, 8), make(7, 8), torch.where(target < 0, 4, target), make(7), 4, 0.0, 0.1, "mean", 3.0)
    sure = confident_rows(40, device=device, dtype=dtype, requires_grad=requires_grad)
    same = torch.eye(40, device=device, dtype=dtype).requires_grad_(requires_grad)  # the logits are the input
    yield Sample(sure, same, torch.arange(len(sure), device=device))


def _of_two_operators(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float = 0.0,
) -> Tensor:
    if lse_square_scale or softcap:
        raise ValueError("without lse_square_scale and softcap")
    logits = torch.nn.functional.linear(input, weight, bias).float()
    return torch.nn.functional.cross_entropy(
        logits, target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
    )


def _measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, dtype=dtype, requires_grad=requires_grad)
    rows, width, classes = 512, 512, 32_000
    yield Sample(make(rows, width), make(classes, width), torch.randint(classes, (rows,), device=device))


def _errors(device: str) -> Iterator[ErrorSample]:
    x, weight = torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)
    wrong_target = torch.tensor([0, 4], device=device)
    yield ErrorSample(Sample(x, weight, wrong_target), (RuntimeError, IndexError), by_values=True)
    target = torch.tensor([0, 1], device=device)
    yield ErrorSample(Sample(x, weight, target, None, -100, 0.0, 0.0, "none"), (RuntimeError, ValueError))
    for wrong in ((0.0, -0.5, "mean", 0.0), (0.0, 0.0, "mean", -2.0)):
        yield ErrorSample(Sample(x, weight, target, None, -100, *wrong), RuntimeError)


FUSED_LINEAR_CROSS_ENTROPY = Operator(
    "fused_linear_cross_entropy",
    reference=_fused_linear_cross_entropy,
    training="fused_linear_cross_entropy_training",
    samples=_samples,
    measured=_measured,
    peers={"F.cross_entropy": _of_two_operators},
    errors=_errors,
    doc="""Cross entropy of ``input @ weight.T + bias``, without all of these logits in memory.

    A few rows of logits are computed at a time. Where a gradient is recorded, those of ``input``, ``weight`` and
    ``bias`` are computed with them, and only scaled in the backward pass.

    Args:
        input: ``(rows, width)``; float16, bfloat16, float32 or float64.
        weight: ``(classes, width)``, of the same dtype.
        target: int64 ``(rows,)``: the right class of each row.
        bias: None, or ``(classes,)``.
        ignore_index: rows with this target do not count.
        lse_square_scale: factor of ``logsumexp(logits) ** 2``, which is added to the loss of a row.
        label_smoothing: share of the target that is spread over all classes.
        reduction: ``"mean"`` over the rows that count, or ``"sum"``.
        softcap: logits become ``softcap * tanh(logits / softcap)``; 0 for none.

    Returns:
        The loss, a 0-d tensor: float64 for float64, else float32.

    Raises:
        RuntimeError: a shape or dtype does not fit, a target is no class, or ``reduction`` is neither.
    """,
)
FUSED_LINEAR_CROSS_ENTROPY_TRAINING = Operator(
    "fused_linear_cross_entropy_training",
    reference=_fused_linear_cross_entropy_training,
    derivatives={
        "input": "scaled(d_input, grad_loss * factor, input)",
        "weight": "scaled(d_weight, grad_loss * factor, weight)",
        "bias": "scaled(d_bias, grad_loss * factor, bias)",
    },
    not_differentiable=("d_input", "d_weight", "d_bias", "factor"),
    samples=_samples,
)


def _scaled(x: Tensor, factor: Tensor, like: Tensor) -> Tensor:
    check_shape(factor, "factor", ())
    check_shape(like, "like", x.shape)
    if x.dtype not in (like.dtype, wide(like).dtype):
        raise RuntimeError(f"argument 'x' is {x.dtype}, but 'like' is {like.dtype}; convert it with .to(...)")
    if factor.dtype != wide(like).dtype:
        raise RuntimeError(
            f"argument 'factor' is {factor.dtype}, expected {wide(like).dtype}; convert it with .to(...)"
        )
    return (wide(x) * factor).to(like.dtype)


def _scaled_samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device, requires_grad=requires_grad)
    computed = torch.float64 if dtype is torch.float64 else torch.float32
    for shape in SHAPES:
        like = randn(*shape, device=device, dtype=dtype)
        yield Sample(make(*shape, dtype=dtype), make(dtype=computed), like)
        if computed != dtype:
            yield Sample(make(*shape, dtype=computed), make(dtype=computed), like)


def _scaled_measured(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    make = partial(randn, device=device)
    x = make(32_000, 512, dtype=dtype, requires_grad=requires_grad)
    # The factor is a gradient: it needs one itself for second derivatives alone.
    yield Sample(x, make(dtype=torch.float32), x.detach())


def _scaled_errors(device: str) -> Iterator[ErrorSample]:
    x, factor = torch.ones(2, 3, device=device), torch.ones((), device=device)
    yield ErrorSample(Sample(x, torch.ones(1, device=device), x), RuntimeError)
    yield ErrorSample(Sample(x, factor.double(), x), RuntimeError)
    yield ErrorSample(Sample(x, factor, x[:1]), RuntimeError)
    yield ErrorSample(Sample(x.double(), factor, x), RuntimeError)


# `grad * factor * d_weight`, rounded once to the weight's dtype, in the place of several operators: a result as large
# as a vocabulary gets huge pages here.
SCALED = Operator(
    "scaled",
    reference=_scaled,
    rule=Rows(x=1, like=1),
    derivatives={"x": "scaled(grad, factor, x)"},
    samples=_scaled_samples,
    measured=_scaled_measured,
    peers={"x * factor": lambda x, factor, like: (x * factor).to(like.dtype)},
    errors=_scaled_errors,
)
