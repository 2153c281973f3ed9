"""out= and in-place variants: results, aliasing, resizing, and what is refused without touching anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from opwheel.dispatch.overload import Overload

from . import reference
from .memory import FOREIGN, FUNCTIONAL, READABLE, make, plain
from .samples import LAYOUTS, arguments, numbers

pytestmark = pytest.mark.subsystem("out and in-place")


def functional_of(overload: Overload, overloads: dict[str, Overload]) -> Overload:
    """The variant that returns a new tensor."""
    return overloads[overload.name.removesuffix(".out").removesuffix("_")]


def call(overload: Overload, args: tuple[Any, ...], target: torch.Tensor) -> torch.Tensor:
    """Call the variant so that ``target`` is written."""
    result: torch.Tensor = overload.op(*args, out=target) if overload.is_out else overload.op(target, *args[1:])
    return result


def refuses(overload: Overload, args: tuple[Any, ...], target: torch.Tensor, *words: str) -> None:
    """The call raises, names every word, and leaves all tensors as they are."""
    tensors = [*overload.tensors(args), target]
    before = [tensor.detach().clone() for tensor in tensors]
    with pytest.raises(RuntimeError) as caught:
        call(overload, args, target)
    for word in words:
        assert word in str(caught.value)
    for tensor, old in zip(tensors, before, strict=True):
        assert torch.equal(tensor, old)
        assert tensor.shape == old.shape


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "expanded"])
def test_writes_into_any_layout(
    mutating: Overload, overloads: dict[str, Overload], dtype: torch.dtype, layout: str, device: torch.device
) -> None:
    args = arguments(mutating, (2, 3, 4, 5), dtype, device)
    target = LAYOUTS[layout](args[0].clone())
    strides = target.stride()
    result = call(mutating, args, target)
    assert result is target
    assert target.stride() == strides
    reference.check(functional_of(mutating, overloads), args, target)


def test_broadcasts_into_the_target(mutating: Overload, overloads: dict[str, Overload], device: torch.device) -> None:
    shapes = [(3, 4), (4,), (3, 1)][: len(mutating.tensor_arguments)]
    args = arguments(mutating, shapes, torch.float32, device)
    target = args[0].clone()
    call(mutating, args, target)
    reference.check(functional_of(mutating, overloads), args, target)


def test_the_target_may_be_an_input(
    out_variant: Overload, overloads: dict[str, Overload], device: torch.device
) -> None:
    for position, name in enumerate(out_variant.arguments):
        if name not in out_variant.tensor_arguments:
            continue
        args = arguments(out_variant, (5, 40), torch.float32, device)
        original = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)
        call(out_variant, args, args[position])
        reference.check(functional_of(out_variant, overloads), original, args[position])


def test_the_target_may_be_every_input(
    mutating: Overload, overloads: dict[str, Overload], device: torch.device
) -> None:
    target = numbers((500,), torch.float32, 3).to(device)
    args = tuple(target if name in mutating.tensor_arguments else 1.5 for name in mutating.arguments)
    original = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)
    call(mutating, args, target)
    reference.check(functional_of(mutating, overloads), original, target)


def test_an_empty_out_is_resized(out_variant: Overload, overloads: dict[str, Overload], device: torch.device) -> None:
    functional = functional_of(out_variant, overloads)
    for layout in ("contiguous", "transposed", "channels_last"):
        args = arguments(out_variant, (2, 3, 4, 5), torch.float32, device, layouts=(layout,))
        target = torch.empty(0, device=device)
        call(out_variant, args, target)
        assert target.stride() == functional.op(*args).stride()
        reference.check(functional, args, target)


@pytest.mark.parametrize("kind", FOREIGN)
def test_refuses_to_grow_memory_of_somebody_else(out_variant: Overload, kind: str, device: torch.device) -> None:
    args = arguments(out_variant, (3, 4), torch.float32, device)
    target = make(kind, torch.empty(0, device=device))
    for _ in range(2):
        refuses(out_variant, args, target, "Trying to resize storage that is not resizable")


@pytest.mark.parametrize("kind", READABLE)
def test_writes_into_unusual_memory(
    mutating: Overload, overloads: dict[str, Overload], kind: str, device: torch.device
) -> None:
    args = arguments(mutating, (3, 4), torch.float32, device)
    target = make(kind, args[0])
    if kind in FUNCTIONAL:  # which take in nothing but their kind
        wrapped = tuple(make(kind, value) if isinstance(value, torch.Tensor) else value for value in args)
        call(mutating, wrapped, target)
    else:
        call(mutating, args, target)
    reference.check(functional_of(mutating, overloads), args, plain(target))


def test_resizing_moves_memory_that_an_input_shares(
    out_variant: Overload, overloads: dict[str, Overload], device: torch.device
) -> None:
    """So large that the old memory is gone when it is free."""
    count = 2**18
    memory = numbers((3 * count // 2,), torch.float32, 3).to(device)
    args = tuple(memory[:count] if name in out_variant.tensor_arguments else 1.5 for name in out_variant.arguments)
    original = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)
    overlapping, behind = memory[5:5], memory[count:count]
    with pytest.raises(RuntimeError, match="share memory"):
        call(out_variant, args, overlapping)
    assert overlapping.shape == (0,)
    call(out_variant, args, behind)
    reference.check(functional_of(out_variant, overloads), original, behind)
    for value, before in zip(out_variant.tensors(args), out_variant.tensors(original), strict=True):
        assert torch.equal(value, before)


def test_interleaved_memory_is_fine(mutating: Overload, overloads: dict[str, Overload], device: torch.device) -> None:
    memory = numbers((2000,), torch.float32, 3).to(device)
    args = tuple(memory[1::2] if name in mutating.tensor_arguments else 1.5 for name in mutating.arguments)
    original = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)
    target = memory[::2]
    if mutating.is_in_place:
        original = (target.clone(), *original[1:])
    call(mutating, args, target)
    reference.check(functional_of(mutating, overloads), original, target)


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_overlapping_windows_are_computed_as_if_copied(
    mutating: Overload, overloads: dict[str, Overload], shift: int, device: torch.device
) -> None:
    """Columns of one matrix: PyTorch does not classify this overlap, and a direct kernel would read what it wrote."""
    if len(mutating.tensor_arguments) == 1 and mutating.is_in_place:
        pytest.skip("it has no other input")
    memory = numbers((64, 40), torch.float32, 3).to(device)
    window, target = memory[:, :30], memory[:, shift : shift + 30]
    args = tuple(window if name in mutating.tensor_arguments else 1.5 for name in mutating.arguments)
    original = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)
    if mutating.is_in_place:
        original = (target.clone(), *original[1:])
    call(mutating, args, target)
    reference.check(functional_of(mutating, overloads), original, target)


def test_refuses_partial_overlap(mutating: Overload, device: torch.device) -> None:
    memory = numbers((100,), torch.float32, 3).to(device)
    args = tuple(memory[:-1] if name in mutating.tensor_arguments else 1.5 for name in mutating.arguments)
    refuses(mutating, args, memory[1:], "share memory")


def test_refuses_a_target_that_overlaps_itself(mutating: Overload, device: torch.device) -> None:
    args = arguments(mutating, (3, 4), torch.float32, device)
    refuses(mutating, args, torch.zeros(4, device=device).expand(3, 4), "share one place in memory")
    refuses(mutating, args, torch.zeros(9, device=device).as_strided((3, 4), (1, 1)), "share one place in memory")


def test_a_target_with_interleaved_dimensions(
    mutating: Overload, overloads: dict[str, Overload], device: torch.device
) -> None:
    """Neither stride is a multiple of the other's reach, and yet all elements are different ones."""
    target = torch.zeros(9, device=device).as_strided((3, 2), (2, 3))
    args = arguments(mutating, (3, 2), torch.float32, device)
    if mutating.is_in_place:
        args = (target.copy_(args[0]), *args[1:])
    original = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in args)
    call(mutating, args, target)
    reference.check(functional_of(mutating, overloads), original, target)


def test_refuses_another_dtype(mutating: Overload, device: torch.device) -> None:
    args = arguments(mutating, (3, 4), torch.float32, device)
    target = torch.zeros((3, 4), dtype=torch.float16, device=device)
    refuses(mutating, args, target, "torch.float16", "torch.float32")


def test_refuses_another_shape(mutating: Overload, device: torch.device) -> None:
    args = arguments(mutating, (3, 4), torch.float32, device)
    if mutating.is_in_place:
        refuses(mutating, args, torch.zeros(4, device=device), "(4,)", "(3, 4)")
        empty = arguments(mutating, [(1, 0), (2, 1), (2, 1)][: len(mutating.tensor_arguments)], torch.float32, device)
        refuses(mutating, empty, empty[0], "(1, 0)", "(2, 0)")
    else:
        refuses(mutating, args, torch.zeros((3, 5), device=device), "(3, 5)", "(3, 4)")


def test_refuses_a_target_on_another_device(out_variant: Overload, device: torch.device) -> None:
    args = arguments(out_variant, (3, 4), torch.float32, device)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        out_variant.op(*args, out=torch.empty((3, 4), device="meta"))


def test_counts_the_modification(mutating: Overload, device: torch.device) -> None:
    args = arguments(mutating, (3, 4), torch.float32, device)
    target = args[0].clone()
    before = target._version
    call(mutating, args, target)
    assert target._version == before + 1


def test_refuses_inference_tensors_outside_inference_mode(mutating: Overload, device: torch.device) -> None:
    args = arguments(mutating, (3, 4), torch.float32, device)
    with torch.inference_mode():
        target = args[0].clone()
        call(mutating, args, target)
    with pytest.raises(RuntimeError, match="inference"):
        call(mutating, args, target)
