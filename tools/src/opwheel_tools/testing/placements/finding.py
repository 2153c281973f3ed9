"""Which placements are right for one sample of an operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.overload import TENSOR_KINDS, Overload, tensors_in
from torch import Tensor

from ..checks.agreement import run_kernel, run_reference
from .candidates import Candidates
from .parts import is_joined_to, shared_dim
from .simulation import PLACEMENTS_OF_PARTIAL, Compute, call_on_parts, outcome

_UNEVEN = (2, 3, 4, 5)  # up to parts of one element, and empty ones: what is right of some values alone fails then
_OF_SUMS = (2, 3)
_DRAWN = 5
EVEN = (2, 3, 4)
"""The numbers of processes that are tried with parts of the same size."""


class Found(NamedTuple):
    """One way to place a sample.

    Args:
        arguments: the placement of each argument that is a tensor, by position.
        results: for each result the placements that it may be taken to have.
        evenly: whether the processes have to have parts of the same size.
        needed: positions of the arguments that are no tensors and whose values it needs, as far as one knows: it is
            wrong with another one, or the operator takes no other one that was tried.
    """

    arguments: Mapping[int, str]
    results: tuple[tuple[str, ...], ...]
    evenly: bool = False
    needed: frozenset[int] = frozenset()


class _Call(NamedTuple):
    """A call, and what it gives."""

    values: tuple[Any, ...]
    whole: Sequence[Tensor]


def find_placements(
    overload: Overload,
    values: tuple[Any, ...],
    others: Mapping[int, Sequence[Any]],
    indices: Mapping[int, Tensor],
    compute: Compute = run_reference,
) -> list[Found]:
    """Every way to place a call, but whole tensors, of which two or more processes compute the right results.

    What follows from the claim of an element-wise operator is left out. The tensors of lists stay whole, and what is
    written to is no sum over processes. The operator's kernel has to give the right results, too: it may use what the
    reference computes anew, such as a kept result.

    Args:
        overload: that is called.
        values: of all arguments, as :func:`widened` gives them; of rounded numbers no sums over processes are found.
        others: values that arguments which are no tensors have in other samples, by position.
        indices: what tensors of integers hold in all samples, by position: what is right of a sample's values alone,
            such as of a mean where no element is ignored, is not right.
        compute: how: by the reference.
    """
    candidates = Candidates(overload, compute, values, partial_alone=isinstance(overload.rule, Elementwise))
    call = _Call(values, candidates.whole)
    changed = {i: _changed(overload, compute, call, i, others.get(i, ())) for i in _numbers(overload)}
    mixed = list(_with_other_indices(overload, compute, values, indices))
    found = []
    for arguments in candidates.assignments():
        one = _right(overload, compute, call, arguments)
        if (
            one is not None
            and _keeps_unused(candidates, one)
            and all(_is_right_for(overload, compute, other, one) for other in mixed)
            and _is_right_for(overload, run_kernel, call, one)
        ):
            found.append(one._replace(needed=_needed(overload, compute, one, changed)))
    return found


def _right(overload: Overload, compute: Compute, call: _Call, arguments: Mapping[int, str]) -> Found | None:
    sizes = {call.values[i].shape[dim] for i, p in arguments.items() if (dim := shared_dim(p)) is not None}
    if len(sizes) < 2:
        results = _results(overload, compute, call, arguments, _UNEVEN if sizes else _OF_SUMS)
        if results is not None:
            return Found(arguments, results)
    even = [count for count in EVEN if all(size % count == 0 for size in sizes)]
    if not sizes or not even:
        return None
    results = _results(overload, compute, call, arguments, even)
    return None if results is None else Found(arguments, results, evenly=True)


def _results(
    overload: Overload, compute: Compute, call: _Call, arguments: Mapping[int, str], counts: Sequence[int]
) -> tuple[tuple[str, ...], ...] | None:
    """The placements that each result may have with all these numbers of processes; None where one has none."""
    written = [arguments.get(i, "R") for i in overload.written for _ in tensors_in([call.values[i]])]
    plain = len(call.whole) - len(written)
    right = [_every(one) for one in call.whole[:plain]] + [[placement] for placement in written]
    for count in counts:
        try:
            parts = call_on_parts(overload, compute, call.values, arguments, count)
        except Exception:  # the operator refuses such parts
            return None
        right = [
            [placement for placement in possible if is_joined_to(mine, placement, one)]
            for possible, mine, one in zip(right, parts, call.whole, strict=True)
        ]
        if not all(right):
            return None
    return tuple(map(tuple, right[:plain]))


def _every(result: Tensor) -> list[str]:
    shared = [f"S({dim})" for dim, size in enumerate(result.shape) if size > 1]
    return ["R", *shared, *(PLACEMENTS_OF_PARTIAL if result.is_floating_point() else ())]


def _keeps_unused(candidates: Candidates, one: Found) -> bool:
    """Whether arguments that the reference does not use are still what it computes anew from the others.

    They are where parts of all arguments belong together, and where what is a sum over processes is a gradient, in
    which every result is linear: a kept result does not depend on it.
    """
    partial = [placement for placement in one.arguments.values() if placement in PLACEMENTS_OF_PARTIAL]
    return not (candidates.unused and partial) or all("R" not in possible for possible in one.results)


def _with_other_indices(
    overload: Overload, compute: Compute, values: tuple[Any, ...], indices: Mapping[int, Tensor]
) -> Iterator[_Call]:
    """The same call with other integers in its tensors, as far as the operator takes them."""
    generator = torch.Generator().manual_seed(2)

    def drawn(value: Any, pool: Tensor) -> Any:
        chosen = pool[torch.randint(len(pool), value.shape, generator=generator)]
        return torch.where(torch.rand(value.shape, generator=generator) < 0.5, chosen, value)

    positions = [i for i in indices if isinstance(values[i], Tensor) and not values[i].is_floating_point()]
    for _ in range(_DRAWN if positions else 0):
        each = [drawn(value, indices[i]) if i in positions else value for i, value in enumerate(values)]
        yield from _taken(overload, compute, iter([tuple(each)]))


def _is_right_for(overload: Overload, compute: Compute, call: _Call, one: Found) -> bool:
    again = _right(overload, compute, call, one.arguments)
    return again is not None and _covers(again, one)


def _covers(one: Found, other: Found) -> bool:
    """Whether everything that is right of the other is right of this one."""
    if one.evenly and not other.evenly:
        return False
    return all(set(theirs) <= set(mine) for mine, theirs in zip(one.results, other.results, strict=True))


def _numbers(overload: Overload) -> list[int]:
    """Positions of the arguments that are no tensors."""
    return [i for i, a in enumerate(overload.schema.arguments) if str(a.real_type) not in TENSOR_KINDS]


def _changed(overload: Overload, compute: Compute, call: _Call, i: int, others: Sequence[Any]) -> list[_Call]:
    """The calls with other values of an argument that the operator takes."""
    kind, value = str(overload.schema.arguments[i].real_type), call.values[i]
    tried: list[Any] = [other for other in others if type(other) is not float]
    if type(value) is float:
        tried = [0.7 * value + 0.3]
    elif value is None and kind == "Optional[float]":
        tried.append(0.7)
    elif type(value) is bool:
        tried = [not value]
    return list(_taken(overload, compute, ((*call.values[:i], other, *call.values[i + 1 :]) for other in tried)))


def _taken(overload: Overload, compute: Compute, calls: Iterator[tuple[Any, ...]]) -> Iterator[_Call]:
    for values in calls:
        try:
            call = _Call(values, outcome(overload, compute, values))
        except Exception:  # the operator refuses them
            call = None
        if call is not None:
            yield call


def _needed(overload: Overload, compute: Compute, one: Found, changed: Mapping[int, Sequence[_Call]]) -> frozenset[int]:
    is_right = partial(_is_right_for, overload, compute, one=one)
    needed = {i for i, calls in changed.items() if not calls or not all(map(is_right, calls))}
    free = [i for i in changed if i not in needed]
    if len(free) > 1:
        values = list(changed[free[0]][0].values)
        for i in free[1:]:
            values[i] = changed[i][0].values[i]
        if not all(map(is_right, _taken(overload, compute, iter([tuple(values)])))):
            return frozenset(changed)
    return frozenset(needed)


def widened(overload: Overload, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, with all tensors of floating point in float64, or as they are where the kernel takes no others."""

    def of(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [of(one) for one in value]
        return value.to(torch.float64) if isinstance(value, Tensor) and value.is_floating_point() else value

    wide = tuple(of(value) for value in values)
    return wide if list(_taken(overload, run_kernel, iter([wide]))) else values
