"""What is counted: calls on 4 elements, where the way to the kernel is all there is, and kernels at a fixed size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

_FEW = 4
_ROWS, _COLUMNS = 256, 256  # fit into any cache, so that no processor writes past it
_SQUARE = 128  # 2^14 elements, from which on transformer_ops has a kernel for rms_norm


@dataclass(frozen=True)
class Statement:
    """A statement, the names in it, and the context in which it runs."""

    name: str
    statement: str
    operands: Callable[[], dict[str, Any]]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


CONTROL = "call/addcmul"
_OF_TORCH = "cuda/torch/"


def is_control(name: str) -> bool:
    """Whether nothing of ours has a part in a statement: when its count changes, PyTorch or Python is another."""
    return name == CONTROL or name.startswith(_OF_TORCH)


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


def _outside() -> dict[str, Any]:
    """Calls of PyTorch's operators that no kernel of transformer_ops is for: too small, or laid out otherwise."""
    few, target, transposed = torch.rand(_FEW, 64), torch.arange(_FEW), torch.rand(_SQUARE, _SQUARE).t()
    heads = torch.rand(1, 2, _FEW, 16)
    functional = torch.nn.functional
    return {"few": few, "target": target, "transposed": transposed, "heads": heads, "functional": functional}


_ACCELERATED = (
    "rms_norm",
    "layer_norm",
    "softmax",
    "log_softmax",
    "cross_entropy_loss",
    "scaled_dot_product_attention",
)


@contextmanager
def _accelerated(*names: str) -> Iterator[None]:
    import transformer_ops  # where nothing of it is counted it is not needed

    with transformer_ops.accelerate_torch(*names):
        yield


def _outside_pair(name: str, statement: str) -> tuple[Statement, Statement]:
    """With PyTorch's own kernel and with ours over it: the difference is what asking the conditions costs.

    The other kernels are on both times: what malloc has to search depends on what was allocated before.
    """
    others = [one for one in _ACCELERATED if one != name.split()[0]]
    off = Statement(f"outside/{name}, off", statement, _outside, partial(_accelerated, *others))
    return off, Statement(f"outside/{name}, on", statement, _outside, partial(_accelerated, *_ACCELERATED))


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
    *_outside_pair("rms_norm", "torch.rms_norm(few, [64])"),
    # Asked are all of its conditions: the last one is not met.
    *_outside_pair("rms_norm transposed", f"torch.rms_norm(transposed, [{_SQUARE}])"),
    *_outside_pair("layer_norm", "torch.layer_norm(few, [64])"),
    *_outside_pair("softmax", "torch.softmax(few, -1)"),
    *_outside_pair("log_softmax", "torch.log_softmax(few, -1)"),
    *_outside_pair("cross_entropy_loss", "functional.cross_entropy(few, target)"),
    *_outside_pair(
        "scaled_dot_product_attention", "functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)"
    ),
)


def _on_cuda(shape: tuple[int, ...], *more: tuple[int, ...]) -> Callable[[], dict[str, Any]]:
    """Tensors on a GPU: x, y and so on, which need gradients, and what arrives at a result of the shape of x."""

    def operands() -> dict[str, Any]:
        import transformer_ops  # as in _accelerated

        leaves = (torch.rand(*one, device="cuda").requires_grad_() for one in (shape, *more))
        grad, target = torch.rand(*shape, device="cuda"), torch.zeros(shape[0], dtype=torch.int64, device="cuda")
        names = dict(zip("xyz", leaves, strict=False))
        modules = {"transformer_ops": transformer_ops, "functional": torch.nn.functional}
        return {**names, "grad": grad, "target": target, **modules}

    return operands


def _forms(
    name: str, call: str, of_torch: str, leaves: str, operands: Callable[[], dict[str, Any]], grad: str = "grad"
) -> Iterator[Statement]:
    for prefix, called in (("cuda/", f"transformer_ops.{call}"), (_OF_TORCH, of_torch)):
        yield Statement(f"{prefix}{name}, no_grad", called, operands, torch.no_grad)
        yield Statement(f"{prefix}{name}, forward", called, operands)
        gradients = f"torch.autograd.grad({called}, ({leaves}), {grad})"
        yield Statement(f"{prefix}{name}, forward+backward", gradients, operands)


_ROW, _PAIR = _on_cuda((_FEW, 64), (64,), (64,)), _on_cuda((_FEW, 64), (_FEW, 64))
ON_CUDA = (
    Statement(f"{_OF_TORCH}empty_like", "torch.empty_like(x)", _ROW, torch.no_grad),
    *_forms("rms_norm", "rms_norm(x, y)", "functional.rms_norm(x, (64,), y)", "x, y", _ROW),
    *_forms("layer_norm", "layer_norm(x, y, z)", "functional.layer_norm(x, (64,), y, z)", "x, y, z", _ROW),
    *_forms("swiglu", "swiglu(x, y)", "functional.silu(x) * y", "x, y", _PAIR),
    *_forms("softmax", "softmax(x)", "torch.softmax(x, -1)", "x,", _ROW),
    *_forms("cross_entropy", "cross_entropy(x, target)", "functional.cross_entropy(x, target)", "x,", _ROW, "None"),
)
"""Calls of transformer-ops-cuda, and of what PyTorch has for the same, counted on a device whose kernels are not run:
what the host does."""
