"""Checks of vmap: over every argument, alone and together, against a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.overload import Overload, as_tuple
from torch import Tensor
from torch.utils import _pytree as pytree

from .agreement import agree, cloned, has_fractions, raises, run_kernel, run_reference, scaled
from .applicable import NotApplicableError, of_the_reference, unless_reference_raises
from .cases import Samples, holds_numbers
from .data_dependent import check_sizes_are_known


def vmap(overload: Overload, samples: Samples) -> None:
    """``vmap`` over each tensor alone, over all, along the first and the last dimension: the same as a loop."""
    if overload.is_random or not overload.tensor_positions:
        return
    check_sizes_are_known(overload, samples)
    given = samples.values()
    positions = [i for i in overload.tensor_positions if isinstance(given[i], Tensor)]
    choices = [(i,) for i in positions] + ([tuple(positions)] if len(positions) > 1 else [])
    for chosen in choices:
        if overload.mutates and not set(overload.written) <= set(chosen):
            continue
        for at_end in (False, True):
            try:
                _vmap_as_loop(overload, given, chosen, at_end)
            except NotApplicableError as reason:
                samples.left_out.append(str(reason))
    try:
        _vmap_over_own_dimensions(overload, given, positions)
    except NotApplicableError as reason:
        samples.left_out.append(str(reason))


def _example(overload: Overload, position: int, value: Tensor, index: int) -> Tensor:
    """The sample's value and, for the second example, another one of the same kind; indices are the same in both."""
    if not holds_numbers(overload, position):
        return value.clone()
    if not index or not value.dim():
        return value.clone()
    return scaled(value.flip(0), 0.75) if has_fractions(value) else value.flip(0)


def _vmap_as_loop(overload: Overload, given: tuple[Any, ...], chosen: tuple[int, ...], at_end: bool) -> None:
    examples = []
    for index in range(2):
        example = list(given)
        for i in chosen:
            example[i] = _example(overload, i, given[i], index).to(given[i].dtype)
        examples.append(tuple(example))
    batched = list(given)
    places = {i: given[i].dim() if at_end else 0 for i in chosen}
    dims = [places.get(i) for i in range(len(given))]
    for i in chosen:
        batched[i] = torch.stack([example[i] for example in examples], dim=places[i])
    names = ", ".join(overload.names[i] for i in chosen)
    what = f"vmap over {names}{' at the end' * at_end}"
    with of_the_reference(f"{what}: the second example"):
        _on_cpu(overload, examples[1])
    other = cloned(tuple(batched))
    with unless_reference_raises(what, lambda: _vmapped(overload, overload.operator.reference, other, dims)):
        got = _vmapped(overload, overload.op, tuple(batched), dims)
    want = [run_kernel(overload, example) for example in examples]
    agree(overload, what, got, tuple(torch.stack(p) for p in zip(*want, strict=True)))
    for i in overload.written:
        one = torch.stack([example[i] for example in examples], dim=places[i])
        agree(overload, f"vmap over {names}: what is written", [batched[i]], [one])


def _vmapped(
    overload: Overload, function: Callable[..., Any], batched: tuple[Any, ...], dims: Sequence[int | None]
) -> tuple[Any, ...]:
    """The results of the operator, or of its reference, over a batch."""
    positions = [i for i, dim in enumerate(dims) if dim is not None]

    def of(*tensors: Tensor) -> Any:
        values = list(batched)
        for i, one in zip(positions, tensors, strict=True):
            values[i] = one
        results = overload.call(function, tuple(values))
        return () if results is None else results

    results = torch.vmap(of, in_dims=tuple(dims[i] for i in positions))(*(batched[i] for i in positions))
    return as_tuple(results)


def _vmap_over_own_dimensions(overload: Overload, given: tuple[Any, ...], positions: list[int]) -> None:
    """A dimension that the tensors have, taken as the batch, where the reference can be called without it."""
    for i in positions:
        value = given[i]
        for dim in range(value.dim()):
            if value.shape[dim] == 0 or overload.mutates:
                continue
            others = [(*given[:i], value.select(dim, k), *given[i + 1 :]) for k in range(value.shape[dim])]
            if not all(_is_callable(overload, other) for other in others):
                continue
            if value.dim() == 1 and not isinstance(overload.rule, Elementwise):
                continue  # PyTorch batches some operators on tensors without dimensions in other ways
            dims: list[int | None] = [None] * len(given)
            dims[i] = dim
            what = f"vmap over dimension {dim} of {overload.names[i]}"
            with unless_reference_raises(what, partial(_vmapped, overload, overload.operator.reference, given, dims)):
                got = _vmapped(overload, overload.op, given, dims)
            want = [run_reference(overload, other) for other in others]
            stacked = tuple(torch.stack(parts) for parts in zip(*want, strict=True))
            agree(overload, what, got, stacked)


def _is_callable(overload: Overload, values: tuple[Any, ...]) -> bool:
    """Whether the reference takes these values, by a call on the CPU.

    Indices that are right for the whole tensor may be out of range for a part of it. After an assertion about that, an
    accelerator does nothing more for this process.
    """
    return not raises(partial(_on_cpu, overload, values))


def _on_cpu(overload: Overload, values: tuple[Any, ...]) -> None:
    run_reference(overload, pytree.tree_map_only(Tensor, lambda x: x.clone().cpu(), values))
