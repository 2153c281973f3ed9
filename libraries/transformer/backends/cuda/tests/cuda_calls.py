"""Calls of every operator of this backend, for its tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import transformer_ops
from torch import Tensor

Call = tuple[Callable[..., object], tuple[object, ...]]
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ROWS = int(os.environ.get("TEST_ROWS", "130"))
"""For several rows of each team; simulated devices take long."""


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


NAMES = list(calls(8, device="cpu"))


def tensors(results: Any) -> list[Tensor]:
    """Those of an operator."""
    return [one for one in (results if isinstance(results, tuple) else (results,)) if one is not None]


def differentiable(args: Iterable[object]) -> list[Tensor]:
    """Those that require a gradient."""
    return [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]


def run(function: Callable[..., object], args: Sequence[Any]) -> list[Tensor]:
    """Results and gradients; what is written to, where there are no results."""
    results = tensors(function(*args))
    if not results:
        return list(args[2:4])
    wanted = differentiable(args)
    if not wanted:
        return results
    torch.manual_seed(1)
    grads = [torch.randn(one.shape, device="cpu", dtype=torch.float64).to(one) for one in results]
    return [one.detach() for one in results] + list(torch.autograd.grad(results, wanted, grads, allow_unused=True))


def call(name: str, n: int, dtype: torch.dtype, **options: Any) -> Call:
    """A call of `calls`, whose arguments require gradients."""
    function, args = calls(n, dtype, **options)[name]
    if name not in ("quantize_rowwise", "dequantize_rowwise", "reshape_and_cache"):
        for arg in args:
            if isinstance(arg, torch.Tensor) and arg.is_floating_point():
                arg.requires_grad_()
    return function, args


def on_cpu(args: Iterable[Any]) -> list[Any]:
    """Copies, which require gradients like these."""
    return [
        arg.detach().cpu().requires_grad_(arg.requires_grad) if isinstance(arg, torch.Tensor) else arg for arg in args
    ]


def an_element_later(x: Tensor) -> Tensor:
    """The same, in memory that does not begin at a multiple of 16 bytes."""
    return x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x.detach())


def with_gaps(x: Tensor) -> Tensor:
    """The same, whose rows are an element further apart."""
    return x.new_empty(*x.shape[:-1], x.shape[-1] + 1)[..., :-1].copy_(x.detach())


def check_infinite_values(name: str, n: int) -> None:
    """Softmax, or its logarithm, of rows with infinite values and nan, or whose largest is far below 0."""
    inf = float("inf")
    rows = [[-inf, 0.0, -inf, 1.0], [-inf] * 4, [inf, 0.0, 0.0, 0.0], [float("nan"), 0.0, 0.0, 0.0]]
    rows.append([-3000.0, -3001.0, -inf, -inf])  # the largest is far below 0
    x = torch.full((len(rows), n), -inf)
    x[:, :4] = torch.tensor(rows)
    result = getattr(transformer_ops, name)(x.cuda())
    torch.testing.assert_close(result.cpu(), getattr(torch, name)(x, -1), equal_nan=True)


def check_close_logits(n: int) -> None:
    """Float16 near its end: what is computed of their differences must not depend on how large they are."""
    x = (60_000 + 32 * torch.arange(n).remainder(7)).to(torch.float16)[None].cuda()
    small = (x - 60_000).requires_grad_()  # exact
    assert torch.equal(transformer_ops.softmax(x), transformer_ops.softmax(small.detach()))
    target, x = torch.tensor([6], device="cuda"), x.requires_grad_()
    losses = [transformer_ops.cross_entropy(one, target, reduction="none") for one in (x, small)]
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0)
    grads = [torch.autograd.grad(loss, one)[0] for loss, one in zip(losses, (x, small), strict=True)]
    torch.testing.assert_close(*grads, rtol=1e-3, atol=0)


def check_beside_the_cpu(function, args):
    """The same values as of the same operators on the CPU, which are another implementation."""
    expected = run(function, on_cpu(args))
    for mine, theirs in zip(run(function, args), expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)


def check_graph(function, args):
    """A captured call, of new inputs in the same memory."""
    with torch.no_grad():
        function(*args)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = tensors(function(*args))
        for arg in args:
            if isinstance(arg, torch.Tensor) and arg.is_floating_point():
                arg.copy_(values(*arg.shape, dtype=arg.dtype))
        graph.replay()
        torch.cuda.synchronize()
        if not results:
            return
        for one, other in zip(results, tensors(function(*args)), strict=True):
            assert torch.equal(one, other)
