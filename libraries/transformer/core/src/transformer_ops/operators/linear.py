"""A linear layer whose sums are in an order that depends on nothing but their length."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor

from .checks import check_shape
from .invariance import OF_ROWS, RECORDED, along
from .precision import wide


def _check(first: Tensor, name: str, *others: tuple[str, Tensor | None]) -> None:
    """Refuse rows without a last dimension, and other arguments of another dtype."""
    if first.dim() == 0:
        raise RuntimeError(f"argument '{name}' has 0 dimensions, expected at least 1; reshape it")
    for other_name, other in others:
        if other is not None and other.dtype != first.dtype:
            raise RuntimeError(
                f"argument '{other_name}' is {other.dtype}, but '{name}' is {first.dtype}; "
                "convert one of them with .to(...)"
            )


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    _check(x, "x", ("weight", weight), ("bias", bias))
    check_shape(weight, "weight", (*weight.shape[:1], x.shape[-1]))
    if bias is not None:
        check_shape(bias, "bias", weight.shape[:1])
    return torch.nn.functional.linear(wide(x), wide(weight), None if bias is None else wide(bias)).to(x.dtype)


def _linear_backward_input(grad_output: Tensor, weight: Tensor) -> Tensor:
    _check(grad_output, "grad_output", ("weight", weight))
    if weight.dim() != 2:
        raise RuntimeError(f"argument 'weight' has {weight.dim()} dimensions, expected 2")
    check_shape(weight, "weight", (grad_output.shape[-1], weight.shape[1]))
    return (wide(grad_output) @ wide(weight)).to(weight.dtype)


def _linear_backward_weight(grad_output: Tensor, x: Tensor) -> Tensor:
    _check(grad_output, "grad_output", ("x", x))
    check_shape(x, "x", (*grad_output.shape[:-1], *x.shape[-1:]))
    rows, columns = (wide(one).reshape(one.shape[:-1].numel(), one.shape[-1]) for one in (grad_output, x))
    return (rows.t() @ columns).to(x.dtype)


def _linear_backward_bias(grad_output: Tensor) -> Tensor:
    _check(grad_output, "grad_output")
    count = grad_output.shape[:-1].numel()
    return wide(grad_output).reshape(count, grad_output.shape[-1]).sum(0).to(grad_output.dtype)


def _flops_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> int:
    return 2 * x.numel() * weight.shape[0]


def _flops_backward_input(grad_output: Tensor, weight: Tensor) -> int:
    return 2 * grad_output.numel() * weight.shape[1]


def _flops_backward_weight(grad_output: Tensor, x: Tensor) -> int:
    return 2 * grad_output.numel() * x.shape[-1]


LINEAR = Operator(
    "linear",
    reference=_linear,
    rule=Rows(x=1),
    derivatives={
        "x": "linear_backward_input(grad, weight)",
        "weight": "linear_backward_weight(grad, x)",
        "bias": "linear_backward_bias(grad)",
    },
    flops=_flops_linear,
    autocast="lower_precision",
    invariant=OF_ROWS,
    doc="""``x @ weight.T + bias``, the same bits for a row whatever rows are computed with it.

    As :func:`torch.nn.functional.linear`, whose sums are in another order for another number of rows or threads. Here
    each number is the sum of its products from the first to the last, 256 at a time, and so are the numbers of its
    gradients; those of ``weight`` and ``bias`` are sums over the rows, in their order.

    Args:
        x: tensor of at least one dimension, ``(..., features in)``; float16, bfloat16, float32 or float64.
        weight: ``(features out, features in)``, of the dtype of ``x``.
        bias: None, or ``(features out,)``, of the dtype of ``x``.

    Returns:
        A contiguous tensor ``(..., features out)`` of the dtype of ``x``. Computed in float32, float64 for float64, and
        rounded once, with the bias.

    Raises:
        RuntimeError: a shape or dtype does not fit.
    """,
)
LINEAR_BACKWARD_INPUT = Operator(
    "linear_backward_input",
    reference=_linear_backward_input,
    rule=Rows(grad_output=1),
    derivatives={
        "grad_output": "linear(grad, weight)",
        "weight": "linear_backward_weight(grad_output, grad)",
    },
    flops=_flops_backward_input,
    invariant=OF_ROWS,
)
LINEAR_BACKWARD_WEIGHT = Operator(
    "linear_backward_weight",
    reference=_linear_backward_weight,
    derivatives={
        "grad_output": "linear(x, grad)",
        "x": "linear_backward_input(grad_output, grad)",
    },
    flops=_flops_backward_weight,
    invariant=RECORDED
    | {
        "batch": ({"grad_output": -1, "result": 0}, {"x": -1, "result": 1}),
        "order": along(-2, "grad_output", "x"),
    },
)
LINEAR_BACKWARD_BIAS = Operator(
    "linear_backward_bias",
    reference=_linear_backward_bias,
    invariant=RECORDED | {"batch": along(-1, "grad_output", "result"), "order": along(-2, "grad_output")},
)
