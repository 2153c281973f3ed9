"""Checks that strides, expanded dimensions and storage offsets of arguments do not change the result."""

# ruff: noqa: ARG001, D103
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .common import (
    NotTried,
    by_name,
    close,
    every_second,
    require_values,
    tensors_of,
    transposed,
    with_tensors,
    written,
)


def compare_layouts(op: Any, args: Any, kwargs: Any, layout: Callable[[Tensor], Tensor]) -> None:
    require_values(op)
    if any(info.alias_info is not None and not info.alias_info.is_write for info in op._schema.returns):
        raise NotTried("the operator returns views")
    dense = with_tensors((args, kwargs), lambda x: x.contiguous().clone() if x.layout is torch.strided else x.clone())
    given = with_tensors(dense, lambda x: layout(x) if x.layout is torch.strided and not x.is_quantized else x)
    want = op(*dense[0], **dense[1])
    try:
        got = op(*given[0], **given[1])
    except RuntimeError as error:
        raise NotTried(f"the operator refuses these strides: {error}") from error
    close(got, want, f"{layout.__name__.replace('_', ' ')} arguments, compared with contiguous ones")
    for name in written(op):
        close(by_name(op, *given)[name], by_name(op, *dense)[name], f"'{name}' after the call, {layout.__name__}")


def strides(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments that are not contiguous give what contiguous ones give."""
    compare_layouts(op, args, kwargs, transposed)
    compare_layouts(op, args, kwargs, every_second)


def repeated(x: Tensor) -> Tensor:
    return x[:1].expand(x.shape) if x.dim() and x.shape[0] else x


def expanded(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments whose rows are the same memory give what copies of them give."""
    if written(op):
        raise NotTried("the operator writes to its arguments")
    if any(not x.is_floating_point() and not x.is_complex() for x in tensors_of((args, kwargs))):
        raise NotTried("rows of indices may not be the same")
    args, kwargs = with_tensors((args, kwargs), lambda x: repeated(x).contiguous() if x.layout is torch.strided else x)
    compare_layouts(op, args, kwargs, repeated)


def shifted(x: Tensor) -> Tensor:
    return torch.cat([x.new_full((8,), 1), x.flatten(), x.new_full((8,), 1)])[8:-8].view(x.shape)


def offset(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """A non-zero storage offset does not change the result."""
    compare_layouts(op, args, kwargs, shifted)
