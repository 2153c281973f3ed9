"""What is counted: calls on 4 elements, where the way to the kernel is all there is, and kernels at a fixed size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

_FEW = 4
_ROWS, _COLUMNS = 256, 256  # fit into any cache, so that no processor writes past it


@dataclass(frozen=True)
class Statement:
    """A statement, the names in it, and the context in which it runs."""

    name: str
    statement: str
    operands: Callable[[], dict[str, Any]]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


CONTROL = "call/addcmul"
"""muladd has no part in it: when its count changes, PyTorch or Python is another."""


def _calls() -> dict[str, Any]:
    a, b, c, out, grad = (torch.rand(_FEW) for _ in range(5))
    leaf, other = (torch.rand(_FEW, requires_grad=True) for _ in range(2))
    return {"a": a, "b": b, "c": c, "out": out, "grad": grad, "leaf": leaf, "other": other}


def _matrices(dtype: torch.dtype) -> Callable[[], dict[str, Any]]:
    def operands() -> dict[str, Any]:
        a, b, c, out = (torch.rand(_ROWS, _COLUMNS).to(dtype) for _ in range(4))
        wide = torch.rand(_ROWS, 2 * _COLUMNS).to(dtype)
        row, column = torch.rand(_COLUMNS).to(dtype), torch.rand(_ROWS, 1).to(dtype)
        return {"a": a, "b": b, "c": c, "out": out, "wide": wide, "row": row, "column": column, "ops": torch.ops.muladd}

    return operands


def _kernel(name: str, statement: str, dtype: torch.dtype = torch.float32) -> Statement:
    return Statement(f"kernel/{name}", statement, _matrices(dtype))


_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

STATEMENTS = (
    Statement(CONTROL, "torch.addcmul(c, a, b)", _calls, torch.no_grad),
    Statement("call/no_grad", "muladd.muladd(a, b, 2.0)", _calls, torch.no_grad),
    Statement("call/no gradient needed", "muladd.muladd(a, b, 2.0)", _calls),
    Statement("call/out", "muladd.muladd(a, b, 2.0, out=out)", _calls),
    Statement("call/in place", "muladd.muladd_(a, b, 0.5)", _calls),
    Statement("call/tensor c", "muladd.muladd(a, b, c)", _calls),
    Statement("call/torch.ops", "torch.ops.muladd.muladd(a, b, 2.0)", _calls, torch.no_grad),
    Statement("call/torch.ops default", "torch.ops.muladd.muladd.default(a, b, 2.0)", _calls, torch.no_grad),
    Statement("call/forward", "muladd.muladd(leaf, other, 2.0)", _calls),
    Statement(
        "call/forward+backward", "torch.autograd.grad(muladd.muladd(leaf, other, 2.0), (leaf, other), grad)", _calls
    ),
    *(_kernel(str(dtype).removeprefix("torch."), "ops.muladd.out(a, b, 2.0, out=out)", dtype) for dtype in _DTYPES),
    _kernel("three tensors", "ops.fma.out(a, b, c, out=out)"),
    _kernel("row", "ops.fma.out(a, row, row, out=out)"),
    _kernel("column", "ops.fma.out(a, column, column, out=out)"),
    _kernel("transposed", "ops.muladd.out(a, b.t(), 2.0, out=out)"),
    _kernel("sliced", "ops.muladd.out(wide[:, 1:257], b, 2.0, out=out)"),
    _kernel("stepped", "ops.muladd.out(wide[:, ::2], b, 2.0, out=out)"),
    _kernel("both gradients", "ops.muladd_backward(a, b, c)"),
)
