"""Checks of a call under transformations of programs: vmap, autocast, torch.compile, torch.export."""

# ruff: noqa: ARG001
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .common import NotTried, close, copies, leaf_names, outcome, require_values, results_of, with_tensors, written
from .rounding import tolerances


def vmap(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Vmap over each tensor, along each dimension, and over all of them gives what a loop gives."""
    require_values(op)
    if written(op):
        raise NotTried("the operator writes to its arguments")
    leaves, spec = pytree.tree_flatten((args, kwargs))
    names = leaf_names(op, args, kwargs)
    places = [
        i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point() and x.element_size() > 1
    ]
    least = min((leaves[i].dim() for i in places), default=0)
    trials = [([i], dim) for i in places for dim in range(leaves[i].dim() + 1)]
    trials += [(places, dim) for dim in (*range(least + 1), -1)] if len(places) > 1 else []

    def run(*leaves: Any) -> dict[str, Tensor]:
        a, k = pytree.tree_unflatten(leaves, spec)
        return outcome(op, a, k)

    def bounds(examples: list[Any]) -> dict[str, Tensor]:
        found = [tolerances(op, *pytree.tree_unflatten(e, spec)) for e in examples]
        return {name: torch.stack([one[name] for one in found]) for name in found[0]}

    for chosen, dim in trials:
        examples = [[x * (1 - b / 8) if i in chosen else copies(x) for i, x in enumerate(leaves)] for b in range(3)]
        stacked = [torch.stack([e[i] for e in examples], dim) if i in chosen else x for i, x in enumerate(leaves)]
        in_dims = tuple(dim if i in chosen else None for i in range(len(leaves)))
        rows = [run(*e) for e in examples]
        if any(row[name].shape != x.shape for row in rows for name, x in rows[0].items()):
            raise NotTried("the results' shape depends on values")
        want = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        got = torch.vmap(run, in_dims=in_dims)(*stacked)
        which = ", ".join(dict.fromkeys(names[i] for i in chosen))
        yield from close(got, want, f"over {which} along dimension {dim}", lambda: bounds(examples))  # noqa: B023


def autocast(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Under autocast the call is one with all float32 tensors cast to one dtype, or with none cast."""
    require_values(op)
    if written(op):
        raise NotTried("the operator writes to its arguments")
    low = torch.bfloat16
    given = with_tensors((args, kwargs), lambda x: x.float() if x.is_floating_point() else x)
    want = outcome(op, *copies(given))
    with torch.autocast("cpu", dtype=low):
        got = outcome(op, *copies(given))
    how = "under autocast"
    for name, one in got.items():
        other = want.get(name, one)
        if one.dtype not in (low, other.dtype):
            yield f"dtype of {name}, {how}: {one.dtype}, without it {other.dtype}"
    as_wanted = {name: one.to(want[name].dtype) if name in want else one for name, one in got.items()}
    yield from close(as_wanted, want, how, lambda: tolerances(op, given[0], given[1], low))


def compiled(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """torch.compile, static and dynamic, gives what the call gives."""
    require_values(op)
    leaves, spec = pytree.tree_flatten((args, kwargs))

    def run(*leaves: Any) -> dict[str, Tensor]:
        a, k = pytree.tree_unflatten(list(leaves), spec)
        returned = results_of(op(*a, **k))
        return {name: r * 1 if r.is_floating_point() and r.element_size() > 1 else r for name, r in returned.items()}

    def bounds() -> dict[str, Tensor]:
        return tolerances(op, args, kwargs)

    expected = copies(leaves)
    want = run(*expected)
    for dynamic in (False, True):
        torch._dynamo.reset()
        given = copies(leaves)
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
            got = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=dynamic)(*given)
        how = "by torch.compile with dynamic shapes" if dynamic else "by torch.compile"
        problems = [*close(got, want, how, bounds), *after(op, spec, given, expected, how, bounds)]
        yield from problems
        if problems:
            return


def after(op: Any, spec: Any, given: Any, expected: Any, how: str, bounds: Any) -> Iterator[str]:
    """Arguments that a transformed program has left in another state."""
    names = leaf_names(op, *pytree.tree_unflatten(expected, spec))
    for name, one, other in zip(names, given, expected, strict=True):
        if isinstance(one, Tensor):
            what = f"argument '{name}'"
            yield from close({what: one}, {what: other}, f"after the call {how}", bounds)


def export(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """The program that torch.export makes of a call gives what the call gives."""
    require_values(op)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

    class Program(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
            values = list(leaves)
            for i, one in zip(places, tensors, strict=True):
                values[i] = one
            a, k = pytree.tree_unflatten(values, spec)
            return results_of(op(*a, **k))

    def bounds() -> dict[str, Tensor]:
        return tolerances(op, args, kwargs)

    expected, given = copies(leaves), copies(leaves)
    want = Program()(*(expected[i] for i in places))
    exported = torch.export.export(Program(), tuple(copies([leaves[i] for i in places])), strict=False)
    how = "by torch.export"
    yield from close(exported.module()(*(given[i] for i in places)), want, how, bounds)
    yield from after(op, spec, given, expected, how, bounds)
