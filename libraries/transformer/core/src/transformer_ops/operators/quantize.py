"""Quantisation to int8 with a scale for each row."""

from __future__ import annotations

import torch
from opwheel import Operator, Rows
from torch import Tensor

from .invariance import ALWAYS, OF_ROWS


def _quantize_rowwise(x: Tensor) -> tuple[Tensor, Tensor]:
    values = x.float()
    scale = (values.abs().amax(-1) if x.shape[-1] > 0 else values.sum(-1)) / 127
    divisor = torch.where(scale > 0, scale, 1).unsqueeze(-1)
    q = (values / divisor).round().clamp(-127, 127)
    return torch.where(scale.isfinite().unsqueeze(-1), q, 0).to(torch.int8), scale


def _dequantize_rowwise(q: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return (q.to(scale.dtype) * scale.unsqueeze(-1)).to(dtype)


QUANTIZE_ROWWISE = Operator(
    "quantize_rowwise",
    reference=_quantize_rowwise,
    rule=Rows(x=1),
    invariant=ALWAYS | {"batch": True},
    derivatives=None,
    doc="""Quantise each row to int8: ``scale = max(abs(x)) / 127``, ``q = round(x / scale)``.

    Args:
        x: tensor of at least one dimension; float16, bfloat16, float32 or float64.

    Returns:
        ``(q, scale)``: int8 of the shape of ``x``, from -127 to 127, and float32 of that shape without the last
        dimension. The scale is 0 where a row is; it is nan or infinite where a row has such an element, and ``q`` is
        0 there. Not differentiable.

    Raises:
        RuntimeError: ``x`` is 0-d, or of another dtype.
    """,
)
DEQUANTIZE_ROWWISE = Operator(
    "dequantize_rowwise",
    reference=_dequantize_rowwise,
    rule=Rows(q=1, scale=0),
    invariant=OF_ROWS,
    doc="""Undo :func:`quantize_rowwise`: ``q * scale``.

    Args:
        q: int8, of at least one dimension.
        scale: float32, of the shape of ``q`` without the last dimension.
        dtype: of the result: float16, bfloat16, float32 or float64.

    Returns:
        A tensor of the shape of ``q``.

    Raises:
        RuntimeError: a shape or dtype does not fit.
    """,
)
