"""Calls of every operator of this backend, for its tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformer_ops
from torch import Tensor

Call = tuple[Callable[..., object], tuple[object, ...]]


def values(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cuda") -> Tensor:
    """Normal numbers."""
    return torch.randn(shape, device=device, dtype=torch.float64).to(dtype)


def indices(below: int, *shape: int, device: str = "cuda") -> Tensor:
    """Whole numbers, from 0."""
    return torch.randint(below, shape, device=device)


def calls(n: int, dtype: torch.dtype = torch.float32, rows: int = 3, device: str = "cuda") -> dict[str, Call]:
    """A call of each public operator, on rows of n elements (an even number)."""

    def x(*shape: int) -> Tensor:
        return values(*shape, dtype=dtype, device=device)

    t, half = transformer_ops, n // 2
    classes = indices(n, rows, device=device)
    heads = x(1, 3, rows, n), x(1, 9, rows, n), x(rows, n), x(rows, n)
    cache = [x(2, 4, 2, half) for _ in range(2)]
    slots = torch.arange(rows, device=device)
    return {
        "rms_norm": (t.rms_norm, (x(rows, n), x(n))),
        "rms_norm without weight": (t.rms_norm, (x(rows, n),)),
        "rms_norm of Gemma": (t.rms_norm, (x(rows, n), x(n), 1e-6, 1.0, "gemma")),
        "fused_add_rms_norm": (t.fused_add_rms_norm, (x(rows, n), x(rows, n), x(n))),
        "layer_norm": (t.layer_norm, (x(rows, n), x(n), x(n))),
        "swiglu": (t.swiglu, (x(rows, n), x(rows, n))),
        "geglu": (t.geglu, (x(rows, n), x(rows, n))),
        "geglu, exact": (t.geglu, (x(rows, n), x(rows, n), "none")),
        "softmax": (t.softmax, (x(rows, n),)),
        "log_softmax": (t.log_softmax, (x(rows, n),)),
        "rope": (t.rope, heads),
        "rope, interleaved": (t.rope, (*heads, None, 1, True)),
        "rope of positions": (t.rope, (*heads, indices(rows, rows, device=device))),
        "cross_entropy": (t.cross_entropy, (x(rows, n), classes, None, -100, 0.0, 0.1, "none")),
        "cross_entropy, mean": (t.cross_entropy, (x(rows, n), classes, x(n), -100, 0.1, 0.1, "mean")),
        "fused_linear_cross_entropy": (t.fused_linear_cross_entropy, (x(rows, 16), x(n, 16), classes, x(n))),
        "fused_linear_cross_entropy of rows": (
            t.fused_linear_cross_entropy,
            (x(rows, 16), x(n, 16), classes, x(n), -100, 0.1, 0.1, "none", 0.0, x(n)),
        ),
        "quantize_rowwise": (t.quantize_rowwise, (x(rows, n),)),
        "dequantize_rowwise": (
            t.dequantize_rowwise,
            (indices(100, rows, n, device=device).to(torch.int8), values(rows, device=device)),
        ),
        "reshape_and_cache": (t.reshape_and_cache, (x(rows, 2, half), x(rows, 2, half), *cache, slots)),
    }
