"""Checks that strides, expanded dimensions and storage offsets of arguments do not change the result."""

# ruff: noqa: ARG001, D103
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .common import NotTried, close, every_second, leaf_names, outcome, require_values, transposed, written
from .rounding import tolerances


def compare_layouts(
    op: Any, args: Any, kwargs: Any, ways: Mapping[str, Callable[[Tensor], Tensor | None]]
) -> Iterator[str]:
    """Tensors in another layout, all of them and each alone, against contiguous copies.

    Args:
        op: the operator.
        args: positional arguments.
        kwargs: keyword arguments.
        ways: what a layout is called, and what makes it; None for tensors that cannot have it.
    """
    require_values(op)
    if any(info.alias_info is not None and not info.alias_info.is_write for info in op._schema.returns):
        raise NotTried("the operator returns views")
    leaves, spec = pytree.tree_flatten((args, kwargs))
    names, refused, tried = leaf_names(op, args, kwargs), "", 0
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.layout is torch.strided]
    for way, change in ways.items():
        changed = {i: x for i in places if not leaves[i].is_quantized and (x := change(leaves[i])) is not None}
        is_wrong = False
        for chosen in [list(changed)] + [[i] for i in changed] * (len(changed) > 1):
            if is_wrong or not chosen:
                break  # what is wrong with all of them is not said of each
            values = [changed[i] if i in chosen else x for i, x in enumerate(leaves)]
            dense = [
                x.detach().clone(memory_format=torch.contiguous_format) if i in places else x
                for i, x in enumerate(values)
            ]
            given = [
                x.detach() if i in chosen else y for i, (x, y) in enumerate(zip(values, again(dense), strict=True))
            ]
            plain = pytree.tree_unflatten(dense, spec)
            try:
                want = outcome(op, *pytree.tree_unflatten(again(dense), spec))
                got = outcome(op, *pytree.tree_unflatten(given, spec))
            except Exception as error:
                refused = str(error)
                continue
            tried += 1
            which = ", ".join(dict.fromkeys(names[i] for i in chosen))
            for problem in close(got, want, f"{which} {way}", lambda: tolerances(op, *plain)):  # noqa: B023
                is_wrong = len(chosen) == len(changed)
                yield problem
    if not tried:
        raise NotTried(
            f"the operator refuses these strides: {refused}" if refused else "no argument can have these strides"
        )


def again(leaves: list[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, Tensor) else x for x in leaves]


def columns(x: Tensor) -> Tensor | None:
    """Columns of a wider matrix: the last stride is one, and between rows is something else."""
    if x.dim() < 2:
        return None
    side = [x.new_full((*x.shape[:-1], width), 1) for width in (1, 2)]
    return torch.cat([side[0], x, side[1]], -1)[..., 1:-2]


def strides(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Arguments that are not contiguous give what contiguous ones give."""
    ways = {"transposed": transposed, "as every second element": every_second, "as columns of a wider one": columns}
    yield from compare_layouts(op, args, kwargs, ways)


def along(dim: int) -> Callable[[Tensor], Tensor | None]:
    def expand(x: Tensor) -> Tensor | None:
        place = dim + x.dim() if dim < 0 else dim
        is_number = x.is_floating_point() or x.is_complex()  # rows of indices may not be the same
        if not is_number or not 0 <= place < x.dim() or not x.numel():
            return None
        return x.narrow(place, 0, 1).clone().expand(x.shape)

    return expand


def expanded(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Arguments whose parts are the same memory, along each dimension, give what copies of them give."""
    if written(op):
        raise NotTried("the operator writes to its arguments")
    most = max((x.dim() for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)), default=0)
    ways = {f"expanded along dimension {dim}": along(dim) for dim in (0, *range(-1, -most, -1))}
    yield from compare_layouts(op, args, kwargs, ways)


def shifted(x: Tensor) -> Tensor:
    return torch.cat([x.new_full((8,), 1), x.flatten(), x.new_full((8,), 1)])[8:-8].view(x.shape)


def offset(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """A non-zero storage offset does not change the result."""
    yield from compare_layouts(op, args, kwargs, {"inside of larger memory": shifted})
