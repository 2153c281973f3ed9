"""Checks of what a call gives and writes: shapes, memory, values."""

# ruff: noqa: ARG001
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from .common import NotTried, by_name, close, copies, results_of, tensors_of, transposed, with_tensors, written


def call(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """The call itself."""
    op(*copies(args), **copies(kwargs))
    yield from ()


def compare_fake(op: Any, args: Any, kwargs: Any, how: str) -> Iterator[str]:
    """Shape, dtype, strides and device of a fake call's results are those of the real call's."""
    real = results_of(op(*copies(args), **copies(kwargs)))
    # Sizes that depend on values are symbols; those of the arguments are numbers.
    with torch._subclasses.FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True) as mode:
        given = with_tensors((args, kwargs), mode.from_tensor)
        try:
            guessed = results_of(op(*given[0], **given[1]))
        except torch._subclasses.fake_tensor.UnsupportedOperatorException:
            raise NotTried("there is no fake kernel") from None
        except (
            torch._subclasses.fake_tensor.DynamicOutputShapeException,
            torch._subclasses.fake_tensor.DataDependentOutputException,
            GuardOnDataDependentSymNode,
        ):
            raise NotTried("the results' shape depends on values") from None
    if guessed.keys() != real.keys():
        yield f"number of results{how}: {len(guessed)} of the fake kernel, {len(real)} of the kernel"
        return
    for name, one in guessed.items():
        true = real[name]
        for what in ("dtype", "device"):
            guess, truth = getattr(one, what), getattr(true, what)
            if guess != truth:
                yield f"{what} of {name}{how}: {guess} of the fake kernel, {truth} of the kernel"
        sizes, true_sizes = tuple(one.shape), tuple(true.shape)
        is_known = [isinstance(size, int) for size in sizes]  # others depend on values
        if len(sizes) != len(true_sizes) or any(
            known and size != other for known, size, other in zip(is_known, sizes, true_sizes, strict=True)
        ):
            yield f"shape of {name}{how}: {sizes} of the fake kernel, {true_sizes} of the kernel"
        elif true.layout is torch.strided and true.numel() and all(is_known):
            found = [tuple(s for s, n in zip(x.stride(), sizes, strict=True) if n > 1) for x in (one, true)]
            if found[0] != found[1]:
                yield f"strides of {name}{how}: {one.stride()} of the fake kernel, {true.stride()} of the kernel"


def fake(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """The fake kernel's results are like the real ones but for values, for transposed arguments too."""
    found = list(compare_fake(op, args, kwargs, ""))
    yield from found
    args, kwargs = with_tensors(
        (args, kwargs), lambda x: transposed(x) if x.layout is torch.strided and x.dim() > 1 else x
    )
    try:
        op(*copies(args), **copies(kwargs))
    except Exception:
        return  # what the operator refuses needs no fake kernel
    if not found:
        yield from compare_fake(op, args, kwargs, ", of transposed arguments")


def writes(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Arguments that the schema does not mark as written are not."""
    before, given = copies((args, kwargs)), copies((args, kwargs))
    op(*given[0], **given[1])
    kept = by_name(op, *before)
    for name, value in by_name(op, *given).items():
        for one, other in zip(tensors_of(value), tensors_of(kept[name]), strict=True):
            if name not in written(op):
                what = f"argument '{name}'"
                yield from close({what: one}, {what: other}, "which the schema does not mark as written")


def aliases(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
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
            if place in seen:
                yield f"memory of result {i}: it is shared with {seen[place]}, and the schema does not say so"
            seen.setdefault(place, f"result {i}")


def empty(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Arguments without rows are computed or refused."""
    given = with_tensors((args, kwargs), lambda x: x[:0].clone() if x.dim() else x.clone())
    try:
        op(*given[0], **given[1])
    except (RuntimeError, ValueError, IndexError) as error:
        raise NotTried(f"the operator refuses them: {error}") from error
    yield from ()
