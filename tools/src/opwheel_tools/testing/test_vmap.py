"""vmap: the same as a loop over the examples, in one call."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.tensor_iterator import decompose
from torch import Tensor

from . import reference
from .samples import DTYPES, NUMBERS, arguments, numbers

pytestmark = pytest.mark.subsystem("vmap")

_BATCH = 2


def _mixtures(overload: Overload, device: torch.device) -> Iterator[tuple[tuple[Any, ...], tuple[int | None, ...]]]:
    """Arguments and ``in_dims``: every dtype as a number and as a row, with and without a batch, for each tensor."""
    kinds = [
        (is_batched, numbers((_BATCH,) * is_batched + (3,) * has_row, dtype, seed))
        for seed, (is_batched, has_row, dtype) in enumerate(itertools.product((True, False), (False, True), DTYPES))
    ]
    kinds = [(is_batched, values.to(device)) for is_batched, values in kinds]
    for chosen in itertools.product(kinds, repeat=len(overload.tensor_arguments)):
        if any(is_batched for is_batched, _ in chosen):
            pair, number = iter(chosen), itertools.cycle(NUMBERS)
            both = [
                next(pair) if name in overload.tensor_arguments else (False, next(number))
                for name in overload.arguments
            ]
            yield tuple(value for _, value in both), tuple(0 if is_batched else None for is_batched, _ in both)


def _described(overload: Overload, args: tuple[Any, ...], in_dims: tuple[int | None, ...]) -> Any:
    given = [f"{v.dtype} {tuple(v.shape)}" if isinstance(v, Tensor) else repr(v) for v in args]
    return lambda text: f"{overload.name}({', '.join(given)}) with in_dims {in_dims}: {text}"


def test_vmap(functional: Overload, device: torch.device) -> None:
    args = arguments(functional, (3, 4, 5), torch.float32, device)
    for dims in itertools.product((None, 0, 1, -1), repeat=len(functional.tensor_arguments)):
        if all(dim is None for dim in dims):
            continue
        dim = iter(dims)
        in_dims = tuple(next(dim) if name in functional.tensor_arguments else None for name in functional.arguments)
        given = tuple(_batched(value, dim) for value, dim in zip(args, in_dims, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the slow fallback warns
            mine = torch.vmap(functional.op, in_dims=in_dims)(*given)
        theirs = torch.vmap(lambda *a: decompose(functional, a), in_dims=in_dims)(*given)
        torch.testing.assert_close(mine, theirs)


def _batched(value: Any, dim: int | None) -> Any:
    """An unbatched (4, 5), or (3, 4, 5) with the batch of 3 at ``dim``."""
    if not isinstance(value, Tensor):
        return value
    return value[0] if dim is None else value.movedim(0, dim)


def test_vmap_broadcasts_inside_of_the_batch(functional: Overload, device: torch.device) -> None:
    shapes = [(6, 3, 4), (6, 4), (6,)][: len(functional.tensor_arguments)]
    args = arguments(functional, shapes, torch.float32, device)
    in_dims = tuple(0 if isinstance(value, Tensor) else None for value in args)
    mine = torch.vmap(functional.op, in_dims=in_dims)(*args)
    theirs = torch.vmap(lambda *a: decompose(functional, a), in_dims=in_dims)(*args)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.device_independent
def test_vmap_promotes_as_for_each_example(functional: Overload, device: torch.device) -> None:
    """All combinations of dtypes, numbers and rows, batched or not: what has dimensions differs with and without vmap.

    The bound is a few units in the last place of the result: far below what a narrower dtype in between loses.
    """
    for args, in_dims in _mixtures(functional, device):
        mine = reference.as_tuple(torch.vmap(functional.op, in_dims=in_dims)(*args))
        theirs = reference.as_tuple(torch.vmap(lambda *a: decompose(functional, a), in_dims=in_dims)(*args))
        for got, want in zip(mine, theirs, strict=True):
            unit = torch.finfo(want.dtype).eps
            torch.testing.assert_close(
                got, want, rtol=4 * unit, atol=64 * unit, msg=_described(functional, args, in_dims)
            )


@pytest.mark.device_independent
def test_vmap_in_place_refuses_as_for_each_example(in_place: Overload, device: torch.device) -> None:
    """What cannot be stored in one example cannot be stored in any, and nothing has been written then."""
    for args, in_dims in _mixtures(in_place, device):
        if in_dims[0] is None:
            continue
        target = args[0].clone()
        examples = [
            [
                value if dim is None else value[i]
                for value, dim in zip((args[0].clone(), *args[1:]), in_dims, strict=True)
            ]
            for i in range(_BATCH)
        ]
        try:
            expected = torch.stack([in_place.op(*example) for example in examples])
        except RuntimeError:
            with pytest.raises(RuntimeError, match=f"'{in_place.target}'"):
                torch.vmap(in_place.op, in_dims=in_dims)(target, *args[1:])
            expected = args[0]
        else:
            torch.vmap(in_place.op, in_dims=in_dims)(target, *args[1:])
        unit = torch.finfo(expected.dtype).eps
        described = _described(in_place, args, in_dims)
        torch.testing.assert_close(target, expected, rtol=4 * unit, atol=64 * unit, msg=described)


@pytest.mark.device_independent
def test_vmap_in_place_refuses_a_batch_in_one_place(in_place: Overload, device: torch.device) -> None:
    args = arguments(in_place, (3, 4), torch.float32, device)
    target = args[0][:1].clone().expand(3, 4)
    before = target.clone()
    with pytest.raises(RuntimeError, match="share one place in memory"):
        torch.vmap(lambda first: in_place.op(first, *(v[0] if isinstance(v, Tensor) else v for v in args[1:])))(target)
    assert torch.equal(target, before)


@pytest.mark.device_independent
def test_nested_vmap(functional: Overload, device: torch.device) -> None:
    args = arguments(functional, (3, 4, 5), torch.float32, device)
    in_dims = tuple(0 if isinstance(value, Tensor) else None for value in args)
    nested = torch.vmap(torch.vmap(functional.op, in_dims=in_dims), in_dims=in_dims)
    torch.testing.assert_close(nested(*args), functional.op(*args))


def test_vmap_in_place(in_place: Overload, device: torch.device) -> None:
    args = arguments(in_place, (3, 4), torch.float32, device)
    in_dims = tuple(0 if isinstance(value, Tensor) else None for value in args)
    target = args[0].clone()
    result = torch.vmap(in_place.op, in_dims=in_dims)(target, *args[1:])
    torch.testing.assert_close(target, decompose(in_place, args))
    torch.testing.assert_close(result, target)
    with pytest.raises(RuntimeError, match="no batch dimension"):
        torch.vmap(lambda other: in_place.op(args[0][0], other, *args[2:]))(args[1])


@pytest.mark.device_independent
def test_vmap_refuses_out(out_variant: Overload, device: torch.device) -> None:
    args = arguments(out_variant, (3, 4), torch.float32, device)
    with pytest.raises(RuntimeError, match="functional variant"):
        torch.vmap(lambda first: out_variant.op(first, *args[1:], out=torch.empty(4, device=device)))(args[0])
