"""Gated activations: an activation of one half, times the other half."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor
from torch.nn import functional

from .checks import check_like
from .invariance import OF_ROWS
from .precision import wide


def _swiglu(a: Tensor, b: Tensor) -> Tensor:
    check_like(b, "b", a, "a")
    return functional.silu(wide(a)).to(a.dtype) * b


def _swiglu_backward(grad_output: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    grad_, a_, b_ = wide(grad_output), wide(a), wide(b)
    s = torch.sigmoid(a_)
    return (grad_ * b_ * s * (1 + a_ * (1 - s))).to(a.dtype), (grad_ * a_ * s).to(a.dtype)


def _check_approximate(approximate: str) -> None:
    if approximate not in ("tanh", "none"):
        raise ValueError(f"approximate is {approximate!r}, expected 'tanh' or 'none'")


def _geglu(a: Tensor, b: Tensor, approximate: str = "tanh") -> Tensor:
    check_like(b, "b", a, "a")
    _check_approximate(approximate)
    return functional.gelu(wide(a), approximate=approximate).to(a.dtype) * b


def _geglu_backward(grad_output: Tensor, a: Tensor, b: Tensor, approximate: str) -> tuple[Tensor, Tensor]:
    grad_, a_, b_ = wide(grad_output), wide(a), wide(b)
    if approximate == "tanh":
        factor, cubic = (2 / torch.pi) ** 0.5, 0.044715
        t = torch.tanh(factor * (a_ + cubic * a_.pow(3)))
        value = 0.5 * a_ * (1 + t)
        derivative = 0.5 * (1 + t) + 0.5 * a_ * (1 - t * t) * factor * (1 + 3 * cubic * a_ * a_)
    else:
        phi = 0.5 * (1 + torch.erf(a_ * 0.5**0.5))
        value = a_ * phi
        derivative = phi + a_ * torch.exp(-0.5 * a_ * a_) / (2 * torch.pi) ** 0.5
    return (grad_ * b_ * derivative).to(a.dtype), (grad_ * value).to(a.dtype)


_ARGUMENTS = """
    Args:
        a: tensor of at least one dimension; float16, bfloat16, float32 or float64.
        b: tensor of the shape and dtype of ``a``."""
_OUT = """
        out: None, or the tensor that the result is written into, of the shape and dtype of ``a``, which must not share
            memory with the other arguments. Without gradients."""
_RESULT = """

    Returns:
        A tensor of the shape and dtype of ``a``, with the strides of ``a`` and ``b`` where these are the same and leave
        no gaps, else contiguous. 16-bit dtypes are computed in float32; the activation is rounded once,
        and its product with ``b`` again, as by two operators of PyTorch.
"""

SWIGLU = Operator(
    "swiglu",
    reference=_swiglu,
    rule=Rows(a=1, b=1),
    invariant=OF_ROWS,
    memory_format=torch.preserve_format,
    derivatives={"a, b": "swiglu_backward(grad, a, b)"},
    doc=f"""``silu(a) * b`` with ``silu(a) = a * sigmoid(a)`` (Shazeer 2020, https://arxiv.org/abs/2002.05202).
{_ARGUMENTS}{_OUT}{_RESULT}
    Raises:
        RuntimeError: shapes or dtypes differ, or a tensor requires grad and ``out`` is given.
    """,
)
SWIGLU_BACKWARD = Operator(
    "swiglu_backward",
    reference=_swiglu_backward,
    rule=Rows(grad_output=1, a=1, b=1),
    invariant=OF_ROWS,
    memory_format=torch.preserve_format,
)
GEGLU = Operator(
    "geglu",
    reference=_geglu,
    rule=Rows(a=1, b=1),
    invariant=OF_ROWS,
    memory_format=torch.preserve_format,
    derivatives={"a, b": "geglu_backward(grad, a, b, approximate)"},
    doc=f"""``gelu(a) * b`` (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415; Shazeer 2020).
{_ARGUMENTS}
        approximate: ``"tanh"``: ``gelu(a) = a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * a ** 3)))``; ``"none"``:
            ``a / 2 * (1 + erf(a / sqrt(2)))``.{_RESULT}
    Raises:
        RuntimeError: shapes or dtypes differ, or ``approximate`` is neither.
    """,
)
GEGLU_BACKWARD = Operator(
    "geglu_backward",
    reference=_geglu_backward,
    rule=Rows(grad_output=1, a=1, b=1),
    invariant=OF_ROWS,
    memory_format=torch.preserve_format,
)
