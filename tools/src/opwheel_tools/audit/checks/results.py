"""Checks of what a call gives and writes: shapes, memory, values."""

# ruff: noqa: ARG001
from __future__ import annotations

from typing import Any

import torch

from .common import NotTried, by_name, close, copies, tensors_of, transposed, with_tensors, written


def call(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """The call itself."""
    op(*copies(args), **copies(kwargs))


def compare_fake(op: Any, args: Any, kwargs: Any, what: str) -> None:
    """Shape, dtype, strides and device of a fake call's results are those of the real call's."""
    real = tensors_of(op(*copies(args), **copies(kwargs)))
    with torch._subclasses.FakeTensorMode() as mode:
        given = with_tensors((args, kwargs), mode.from_tensor)
        try:
            guessed = tensors_of(op(*given[0], **given[1]))
        except torch._subclasses.fake_tensor.UnsupportedOperatorException:
            raise NotTried("there is no fake kernel") from None
        except (
            torch._subclasses.fake_tensor.DynamicOutputShapeException,
            torch._subclasses.fake_tensor.DataDependentOutputException,
        ):
            raise NotTried("the results' shape depends on values") from None
    assert len(real) == len(guessed), f"{what}: {len(guessed)} results, the kernel gives {len(real)}"
    for i, (one, true) in enumerate(zip(guessed, real, strict=True)):
        assert one.dtype == true.dtype, f"{what}: result {i} is {one.dtype}, the kernel's is {true.dtype}"
        assert one.device == true.device, f"{what}: result {i} is on {one.device}, the kernel's on {true.device}"
        sizes, true_sizes = tuple(one.shape), tuple(true.shape)
        if any(not isinstance(size, int) for size in sizes):
            continue  # the shape depends on values
        assert sizes == true_sizes, f"{what}: result {i} has shape {sizes}, the kernel's {true_sizes}"
        if true.layout is not torch.strided or not true.numel():
            continue
        strides = [s for s, n in zip(one.stride(), sizes, strict=True) if n > 1]
        true_strides = [s for s, n in zip(true.stride(), sizes, strict=True) if n > 1]
        assert strides == true_strides, f"{what}: result {i} has strides {one.stride()}, the kernel's {true.stride()}"


def fake(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """The fake kernel's results are like the real ones but for values, for transposed arguments too."""
    compare_fake(op, args, kwargs, "fake")
    args, kwargs = with_tensors(
        (args, kwargs), lambda x: transposed(x) if x.layout is torch.strided and x.dim() > 1 else x
    )
    try:
        op(*copies(args), **copies(kwargs))
    except RuntimeError:
        return  # what the operator refuses needs no fake kernel
    compare_fake(op, args, kwargs, "fake, of transposed arguments")


def writes(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments that the schema does not mark as written are not."""
    before, given = copies((args, kwargs)), copies((args, kwargs))
    op(*given[0], **given[1])
    for name, value in by_name(op, *given).items():
        if name not in written(op):
            close(value, by_name(op, *before)[name], f"'{name}', which the schema does not mark as written")


def aliases(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Results share memory with arguments and with each other only as the schema says."""
    given = copies((args, kwargs))
    results = op(*given[0], **given[1])
    results = list(results) if len(op._schema.returns) > 1 else [results]
    seen: dict[int, str] = {}
    free = [r for r, info in zip(results, op._schema.returns) if info.alias_info is None]  # noqa: B905
    for name, value in by_name(op, *given).items():
        for one in tensors_of(value):
            if one.layout is torch.strided and one.numel():
                seen[one.untyped_storage().data_ptr()] = f"the argument '{name}'"
    for i, one in enumerate(tensors_of(free)):
        if one.layout is torch.strided and one.numel():
            place = one.untyped_storage().data_ptr()
            assert place not in seen, f"result {i} shares memory with {seen[place]}, and the schema does not say so"
            seen[place] = f"result {i}"


def empty(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Arguments without rows are computed or refused."""
    given = with_tensors((args, kwargs), lambda x: x[:0].clone() if x.dim() else x.clone())
    try:
        op(*given[0], **given[1])
    except (RuntimeError, ValueError, IndexError) as error:
        raise NotTried(f"the operator refuses them: {error}") from error
