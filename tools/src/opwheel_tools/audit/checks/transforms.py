"""Checks of a call under transformations of programs: vmap, autocast, torch.compile, torch.export."""

# ruff: noqa: ARG001
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .common import NotTried, close, copies, require_values, tensors_of, with_tensors, written


def vmap(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Vmap over each tensor, and over all, gives what a loop gives."""
    require_values(op)
    if written(op):
        raise NotTried("the operator writes to its arguments")
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point()]

    def run(*leaves: Any) -> tuple[Tensor, ...]:
        a, k = pytree.tree_unflatten(leaves, spec)
        return tuple(tensors_of(op(*a, **k)))

    for chosen in [[i] for i in places] + ([places] if len(places) > 1 else []):
        for dim in (0, -1):
            examples = [[x * (1 - b / 8) if i in chosen else copies(x) for i, x in enumerate(leaves)] for b in range(3)]
            stacked = [torch.stack([e[i] for e in examples], dim) if i in chosen else x for i, x in enumerate(leaves)]
            in_dims = tuple(dim if i in chosen else None for i in range(len(leaves)))
            results = [run(*e) for e in examples]
            if len({tuple(r.shape for r in one) for one in results}) > 1:
                raise NotTried("the results' shape depends on values")
            want = [torch.stack(parts) for parts in zip(*results, strict=True)]
            got = torch.vmap(run, in_dims=in_dims)(*stacked)
            close(got, want, f"vmap over leaves {chosen} along dimension {dim}, compared with a loop")


def autocast(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Under autocast the call is one with all float32 tensors cast to one dtype, or with none cast."""
    require_values(op)
    if written(op):
        raise NotTried("the operator writes to its arguments")
    given = with_tensors((args, kwargs), lambda x: x.float() if x.is_floating_point() else x)
    want = op(*copies(given[0]), **copies(given[1]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = op(*copies(given[0]), **copies(given[1]))
    for i, (one, other) in enumerate(zip(tensors_of(got), tensors_of(want), strict=True)):
        known = (torch.bfloat16, other.dtype)
        assert one.dtype in known, f"autocast: result {i} is {one.dtype}; without autocast it is {other.dtype}"
        assert one.shape == other.shape, f"autocast: result {i} has shape {one.shape}, expected {other.shape}"


def compiled(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """torch.compile, static and dynamic, gives what the call gives."""
    require_values(op)
    leaves, spec = pytree.tree_flatten((args, kwargs))

    def run(*leaves: Any) -> list[Tensor]:
        a, k = pytree.tree_unflatten(list(leaves), spec)
        return [r * 1 if r.is_floating_point() else r for r in tensors_of(op(*a, **k))]

    expected = copies(leaves)
    want = run(*expected)
    for dynamic in (False, True):
        torch._dynamo.reset()
        given = copies(leaves)
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
            got = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=dynamic)(*given)
        what = "torch.compile with dynamic shapes" if dynamic else "torch.compile"
        close(got, want, what)
        close(given, expected, f"{what}: the arguments after the call")


def export(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """The program that torch.export makes of a call gives what the call gives."""
    require_values(op)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

    class Program(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> list[Tensor]:
            values = list(leaves)
            for i, one in zip(places, tensors, strict=True):
                values[i] = one
            a, k = pytree.tree_unflatten(values, spec)
            return tensors_of(op(*a, **k))

    expected, given = (copies([leaves[i] for i in places]) for _ in range(2))
    want = Program()(*expected)
    exported = torch.export.export(Program(), tuple(copies(given)), strict=False)
    close(exported.module()(*given), want, "torch.export")
    close(given, expected, "torch.export: the arguments after the call")
