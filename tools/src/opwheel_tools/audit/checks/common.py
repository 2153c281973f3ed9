"""What checks have in common: an operator's arguments, its schema, and the comparison of results."""

# ruff: noqa: D103
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class NotTried(Exception):  # noqa: N818  # no error
    """Why a check says nothing about an operator."""


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


def require_values(op: Any) -> None:
    """The check compares values: the operator must give the same ones for the same arguments."""
    if is_random(op):
        raise NotTried("the operator is random")
    if op.namespace == "aten" and "empty" in op._opname:
        raise NotTried("the results are new memory")
    if any(argument.name == "storage_offset" for argument in op._schema.arguments):
        raise NotTried("the operator reads memory by strides that are given")


def close(got: Any, want: Any, what: str, tolerance: float = 0.0) -> None:
    got, want = tensors_of(got), tensors_of(want)
    assert len(got) == len(want), f"{what}: {len(got)} tensors, expected {len(want)}"
    for i, (one, other) in enumerate(zip(got, want, strict=True)):
        assert one.shape == other.shape, f"{what}: result {i} is {tuple(one.shape)}, expected {tuple(other.shape)}"
        assert one.dtype == other.dtype, f"{what}: result {i} is {one.dtype}, expected {other.dtype}"
        if one.layout is not torch.strided or one.is_quantized:
            continue
        number = one.is_floating_point() or one.is_complex()
        bound = max(tolerance, 256 * torch.finfo(one.dtype).eps) if number else 0.0
        size = other.detach().abs().nan_to_num(0, 0, 0).max().item() if number and other.numel() else 0.0
        torch.testing.assert_close(
            one.detach(),
            other.detach(),
            rtol=bound,
            atol=bound * max(1.0, size),
            equal_nan=True,
            msg=lambda text: f"{what}: result {i}: {text}",  # noqa: B023  # called at once
        )


def every_second(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, 1)], -1)[..., 0]


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT if x.dim() > 1 else every_second(x)
