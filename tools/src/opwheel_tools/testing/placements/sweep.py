"""Every combination of placements of a call's tensors, tried on simulated processes: which rules DTensor lacks.

On parts of PyTorch's validator (:mod:`.validator`), which itself takes all results of an operator to have one
placement, leaves out parts of different sizes, and says nothing of an operator without rules. Here each result is
judged alone, and the operator runs on what each process has, as it does in a program.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed.tensor._ops.strategy_validation as validation
from opwheel.dispatch.overload import Overload, as_tuple
from torch import Tensor
from torch.distributed._local_tensor import LocalTensor
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from .processes import simulated_group, simulated_mesh
from .validator import tensors_of

_REDUCTIONS = ("sum", "avg")


class Swept(NamedTuple):
    """What a sweep over the placements of one call has found.

    Args:
        correct: how many combinations DTensor takes to be right, and are.
        incorrect: those that are not, in words.
        missing: those that are right, and that DTensor does not know.
        tried: how many combinations of the arguments' placements were tried.
        left_out: how many were not, as there are too many.
    """

    correct: int
    incorrect: tuple[str, ...]
    missing: tuple[str, ...]
    tried: int
    left_out: int


def sweep(overload: Overload, values: tuple[Any, ...], world_size: int, most: int = 2000) -> Swept:
    """Try the placements of a call.

    Args:
        overload: a functional one, whose tensors are given by position.
        values: of all arguments. Dimensions with less elements than there are processes are not shared out.
        world_size: how many processes are simulated.
        most: how many combinations are tried, besides those that DTensor takes to be right; of more a random choice.
    """
    tensors = tensors_of(values)
    whole = as_tuple(overload.call(overload.op, values))
    with simulated_group(world_size):
        shapes = tuple(tuple(one.shape) for _, one in tensors), tuple(tuple(one.shape) for one in whole)
        args, kwargs = overload.unbind(values)
        known = validation._query_dtensor_rules(overload.op, tensors, args, kwargs, *shapes, world_size, verbose=True)
        rules: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for name, results in known:
            rules.setdefault(name, []).append(results)
        every = list(itertools.product(*(_possible(one, world_size) for _, one in tensors)))[1:]
        chosen = every if len(every) <= most else random.Random(0).sample(every, most)  # noqa: S311  # the same ones
        names = {tuple(map(str, given)) for given in chosen}
        chosen += [given for given in every if tuple(map(str, given)) in rules and tuple(map(str, given)) not in names]
        correct, incorrect, missing = 0, [], []
        with simulated_mesh(world_size) as mesh:
            for given in chosen:
                right = _right(overload, values, tensors, whole, given, mesh)
                name = tuple(map(str, given))
                claimed = rules.get(name, [])
                wrong = [one for one in claimed if not all(p in ok for p, ok in zip(one, right, strict=True))]
                incorrect += [_in_words(name, one) for one in wrong]
                correct += len(claimed) - len(wrong)
                if len(claimed) == len(wrong) and all(right):
                    missing.append(_in_words(name, tuple(" or ".join(sorted(one)) for one in right)))
    return Swept(correct, tuple(incorrect), tuple(missing), len(chosen), len(every) - len(chosen))


def _possible(tensor: Tensor, world_size: int) -> list[Placement]:
    shards = [Shard(dim) for dim, size in enumerate(tensor.shape) if size >= world_size and size > 1]
    return [Replicate(), *shards, *(map(Partial, _REDUCTIONS) if tensor.is_floating_point() else ())]


def _right(
    overload: Overload,
    values: tuple[Any, ...],
    tensors: list[tuple[str, Tensor]],
    whole: tuple[Tensor, ...],
    given: tuple[Placement, ...],
    mesh: Any,
) -> list[set[str]]:
    """The right placements of each result; none where a process's call is refused."""
    right: list[set[str]] | None = None
    count = mesh.size()
    for shift in (0, 1):  # other signs of what partial sums differ by
        parts = [
            _parts(one, index, placement, count, shift)
            for index, ((_, one), placement) in enumerate(zip(tensors, given, strict=True))
        ]
        try:
            outcomes = [as_tuple(overload.call(overload.op, _with(values, mine))) for mine in zip(*parts, strict=True)]
        except Exception:
            return [set() for _ in whole]
        found = [
            set(_placements(list(mine), one, mesh))
            for mine, one in zip(zip(*outcomes, strict=True), whole, strict=True)
        ]
        right = found if right is None else [one & other for one, other in zip(right, found, strict=True)]
        if not all(right) and not any(right):
            break
    return right or []


def _parts(tensor: Tensor, index: int, placement: Placement, count: int, shift: int) -> list[Tensor]:
    if isinstance(placement, Partial):
        local = validation._create_partial_input(tensor, placement, count, index, shift)
        return [local._local_tensors[rank] for rank in range(count)]
    if isinstance(placement, Shard):
        chunks = tensor.chunk(count, placement.dim)
        return [*(one.contiguous() for one in chunks), *[tensor.narrow(placement.dim, 0, 0)] * (count - len(chunks))]
    return [tensor.clone() for _ in range(count)]


def _with(values: tuple[Any, ...], tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """The values, with other tensors."""
    left = iter(tensors)
    return tuple(next(left) if isinstance(value, Tensor) else value for value in values)


def _placements(parts: list[Tensor], whole: Tensor, mesh: Any) -> Iterator[str]:
    shards = [Shard(dim) for dim, size in enumerate(whole.shape) if size > 1]
    for placement in (Replicate(), *shards, *(map(Partial, _REDUCTIONS) if whole.is_floating_point() else ())):
        if _is_joined_to(parts, placement, whole, mesh):
            yield str(placement)


def _is_joined_to(parts: list[Tensor], placement: Placement, whole: Tensor, mesh: Any) -> bool:
    """Whether PyTorch's redistribution to whole tensors gives the whole result."""
    if isinstance(placement, Shard):
        wanted = list(whole.chunk(len(parts), placement.dim))
        wanted += [whole.narrow(placement.dim, 0, 0)] * (len(parts) - len(wanted))
        if [one.shape for one in parts] != [one.shape for one in wanted]:
            return False
        if len({one.shape for one in parts}) > 1:  # which LocalTensor cannot hold
            return all(
                torch.allclose(one, other, 1e-6, 1e-6, equal_nan=True) for one, other in zip(parts, wanted, strict=True)
            )
    elif any(one.shape != whole.shape for one in parts):
        return False
    local = LocalTensor(dict(enumerate(parts)))
    try:
        return bool(validation._compare_outputs(local, whole, (placement,), mesh, len(parts))[0])
    except Exception:  # no redistribution of such a result
        return False


def _in_words(given: tuple[str, ...], results: tuple[str, ...]) -> str:
    return f"{', '.join(given)} -> {', '.join(results)}"
