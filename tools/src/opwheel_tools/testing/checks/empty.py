"""Empty tensors, made from each sample: where the reference accepts a size of 0, so must the kernel.

Sizes that several tensors have may be one size, such as a batch. All dimensions of such a size become 0 together; a
kernel that refuses that is wrong. Each becomes 0 alone, too, and those in the same dimension of several tensors. Where
a reference accepts that, because it broadcasts or reads less than it is given, a kernel may be stricter, but what it
computes has to be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from opwheel.dispatch.overload import Overload
from torch import Tensor
from torch.utils import _pytree as pytree

from ...opinfo.lookup import op_info_of
from .agreement import (
    agree,
    agree_on_written,
    cloned,
    coarseness_of_derivatives,
    differentiable,
    differentiable_reference,
    gradients_of,
    has_derivatives,
    run_kernel,
    run_reference,
)
from .applicable import NotApplicableError, of_the_reference, shown
from .cases import Samples


class Dimension(NamedTuple):
    """A dimension of a tensor among all those of a call, in the order of their arguments."""

    tensor: int
    dim: int


def empty(overload: Overload, samples: Samples) -> None:
    """With sizes of 0, each alone and all equal ones together, results and gradients are the reference's."""
    refused = {frozenset(_zeros(overload.bind(*one))) for one in _declared_refusals(overload, samples)}
    tried = 0
    for chosen, may_refuse in _choices(samples.values()).items():
        what = _described(overload, samples.values(), chosen)
        if chosen in refused:
            samples.left_out.append(f"{what}: declared to be refused")
            continue
        try:
            _compare(overload, samples, chosen, what, may_refuse)
            tried += 1
        except NotApplicableError as reason:
            samples.left_out.append(str(reason))
    if not tried:
        raise NotApplicableError("no size may be 0")


def _choices(values: tuple[Any, ...]) -> dict[frozenset[Dimension], bool]:
    """Dimensions that become empty together, and whether a kernel may refuse that."""
    tensors = _tensors(values)
    every = [Dimension(i, dim) for i, tensor in enumerate(tensors) for dim in range(tensor.dim())]
    sizes = {one: tensors[one.tensor].shape[one.dim] for one in every}
    of_size = {size: frozenset(one for one in every if sizes[one] == size) for size in sizes.values()}
    alone = {frozenset({one}): _are_of_several_tensors(of_size[sizes[one]]) for one in every}
    in_one_place = [frozenset(one for one in of_size[size] if one.dim == dim) for (_, dim), size in sizes.items()]
    choices = dict.fromkeys(in_one_place, True) | alone | dict.fromkeys(of_size.values(), False)
    return {dims: may_refuse for dims, may_refuse in choices.items() if all(sizes[one] for one in dims)}


def _are_of_several_tensors(dims: frozenset[Dimension]) -> bool:
    return len({one.tensor for one in dims}) > 1


def _compare(overload: Overload, samples: Samples, chosen: frozenset[Dimension], what: str, may_refuse: bool) -> None:
    is_recorded = has_derivatives(overload) and not overload.is_random
    given = _emptied(samples.values(requires_grad=is_recorded), chosen)
    with of_the_reference(what), torch.no_grad():  # on a CPU: an accelerator asserts that indices are in range
        run_reference(overload, pytree.tree_map_only(Tensor, lambda x: x.detach().cpu().clone(), given))
    other = cloned(given)
    with of_the_reference(what):
        want = differentiable_reference(overload, other)
    try:
        got = run_kernel(overload, given)
    except Exception as error:
        if may_refuse:
            raise NotApplicableError(f"{what}: refused by the kernel: {shown(error)}") from error
        results = ", ".join(str(list(one.shape)) for one in want) or "nothing"
        raise AssertionError(f"{what}: raises {shown(error)}; the reference returns {results}") from error
    if overload.is_random:
        assert [(t.shape, t.dtype) for t in got] == [(t.shape, t.dtype) for t in want], f"{what}: other results"
        return
    agree(overload, what, got, want)
    agree_on_written(overload, what, given, other)
    inputs, others = differentiable(overload, given), differentiable(overload, other)
    if inputs and is_recorded and not overload.mutates:
        with of_the_reference(f"{what}: gradients"):
            right = gradients_of(want, others, 1)
        try:
            found = gradients_of(got, inputs, 1)
        except Exception as error:
            raise AssertionError(f"{what}: going backward raises {shown(error)}, the reference does not") from error
        pairs = [(_or_zeros(f, x), _or_zeros(r, x)) for f, r, x in zip(found, right, inputs, strict=True)]
        coarsest = coarseness_of_derivatives(samples.dtype)
        agree(overload, f"{what}: gradients", [f for f, _ in pairs], [r for _, r in pairs], coarsest)


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def _emptied(values: tuple[Any, ...], chosen: frozenset[Dimension]) -> tuple[Any, ...]:
    """The values; of the chosen dimensions nothing is left."""
    number = iter(range(len(_tensors(values))))

    def of(tensor: Tensor) -> Tensor:
        own = next(number)
        dims = [one.dim for one in chosen if one.tensor == own]
        if not dims:
            return tensor
        sizes = [0 if dim in dims else size for dim, size in enumerate(tensor.shape)]
        return tensor.detach().new_empty(sizes).requires_grad_(tensor.requires_grad)

    emptied: tuple[Any, ...] = pytree.tree_map_only(Tensor, of, values)
    return emptied


def _declared_refusals(overload: Overload, samples: Samples) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    declared = op_info_of(overload).errors
    for one in declared(samples.device) if declared is not None else ():
        yield one.sample.args, one.sample.kwargs


def _zeros(values: tuple[Any, ...]) -> Iterator[Dimension]:
    """The dimensions of a call's tensors whose size is 0."""
    for i, tensor in enumerate(_tensors(values)):
        yield from (Dimension(i, dim) for dim, size in enumerate(tensor.shape) if size == 0)


def _described(overload: Overload, values: tuple[Any, ...], chosen: frozenset[Dimension]) -> str:
    names = [name for name, value in zip(overload.names, values, strict=True) for _ in _tensors((value,))]
    dims = ", ".join(f"'{names[tensor]}' dimension {dim}" for tensor, dim in sorted(chosen))
    return f"a size of 0 in {dims}"
