"""What checks have in common: an operator's arguments, its schema, and what a call gives."""

# ruff: noqa: D103
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class NotTried(Exception):  # noqa: N818  # no error
    """Why a check says nothing about an operator."""

    code = None  # caught here: no caller sees it


class Noted(Exception):  # noqa: N818  # no error
    """What PyTorch does to every operator of some kind."""

    code = None  # caught here: no caller sees it


def copies(value: Any) -> Any:
    return pytree.tree_map(lambda v: v.detach().clone() if isinstance(v, Tensor) else v, value)


def tensors_of(value: Any) -> list[Tensor]:
    return [v for v in pytree.tree_leaves(value) if isinstance(v, Tensor)]


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return pytree.tree_map(lambda v: change(v) if isinstance(v, Tensor) else v, value)


def is_random(op: Any) -> bool:
    names = [argument.name for argument in op._schema.arguments]
    return torch.Tag.nondeterministic_seeded in op.tags or "generator" in names


def written(op: Any) -> set[str]:
    return {a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write}


def by_name(op: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    names = [argument.name for argument in op._schema.arguments]
    return {**dict(zip(names, args)), **kwargs}  # noqa: B905  # arguments with defaults may lack


def leaf_names(op: Any, args: Any, kwargs: Any) -> list[str]:
    """The argument that each leaf of ``(args, kwargs)`` is, or is in."""
    found = by_name(op, args, kwargs).items()
    return [name for name, value in found for _ in pytree.tree_leaves(value)]


def require_values(op: Any) -> None:
    """The check compares values: the operator must give the same ones for the same arguments."""
    if is_random(op):
        raise NotTried("the operator is random")
    if op.namespace == "aten" and "empty" in op._opname:
        raise NotTried("the results are new memory")
    if any(argument.name == "storage_offset" for argument in op._schema.arguments):
        raise NotTried("the operator reads memory by strides that are given")


def results_of(returned: Any) -> dict[str, Tensor]:
    return {f"result {i}": one for i, one in enumerate(tensors_of(returned))}


def outcome(op: Any, args: Any, kwargs: Any) -> dict[str, Tensor]:
    """What a call gives, and the arguments that it writes to as it leaves them."""
    found = results_of(op(*args, **kwargs))
    for name, value in by_name(op, args, kwargs).items():
        for i, one in enumerate(tensors_of(value) if name in written(op) else []):
            if not any(one is known for known in found.values()):
                found[f"argument '{name}'" + f"[{i}]" * (i > 0)] = one
    return found


def comparable(x: Tensor) -> Tensor:
    """In a dtype that every function takes, with the same values."""
    if x.is_floating_point():
        return x.detach().double()
    return x.detach().to(torch.complex128) if x.is_complex() else x.detach()


def close(
    got: dict[str, Tensor],
    want: dict[str, Tensor],
    how: str,
    allowed: Callable[[], dict[str, Tensor]] = dict,
) -> Iterator[str]:
    """What is other than wanted: by more than is allowed, where something is.

    Args:
        got: tensors by what they are.
        want: the same.
        how: what was other about the call.
        allowed: gives how far the values may be off, for those that may; it is asked where values differ.
    """
    if got.keys() != want.keys():
        yield f"number of results, {how}: {len(got)}, expected {len(want)}"
        return
    for name, one in got.items():
        other = want[name]
        if one.shape != other.shape:
            yield f"shape of {name}, {how}: {tuple(one.shape)}, expected {tuple(other.shape)}"
        elif one.dtype != other.dtype:
            yield f"dtype of {name}, {how}: {one.dtype}, expected {other.dtype}"
        elif one.layout is torch.strided and not one.is_quantized:
            a, b = comparable(one), comparable(other)
            wrong = (a != b) & ~((a != a) & (b != b))
            if wrong.any() and name in (bounds := allowed()):
                wrong &= (
                    ~((a - b).abs() <= bounds[name]) if a.is_complex() or a.is_floating_point() else bounds[name] == 0
                )
            if wrong.any():
                first: Any = tuple(int(i) for i in wrong.nonzero()[0])
                yield (
                    f"values of {name}, {how}: {int(wrong.sum())} of {wrong.numel()} are wrong; the first is "
                    f"{a[first].item():.6g}, expected {b[first].item():.6g}"
                )


def every_second(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, 1)], -1)[..., 0]


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT if x.dim() > 1 else every_second(x)
