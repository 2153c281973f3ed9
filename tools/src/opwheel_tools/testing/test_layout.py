"""Shape, dtype and strides of results: equal to the shape-only kernel's, whatever the inputs' layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opwheel.dispatch.overload import Overload
from torch._subclasses.fake_tensor import FakeTensorMode

from . import reference
from .crashes import Crash
from .samples import DTYPES, numbers

pytestmark = pytest.mark.subsystem("layout")


@pytest.mark.takes_long  # in a process of its own
def test_nothing_is_read_out_of_bounds(functional: Overload, device: torch.device, crashing: dict[str, Crash]) -> None:
    if device.type != "cpu":
        pytest.skip("it needs the memory of a CPU")
    crash = crashing.get(functional.name)
    assert crash is None, f"{functional}: a call of its kernel ends the process: {crash.how}"


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[int], bool]:
    """How to make one operand: its own shape (dimensions may be 1 or missing), an order of dimensions, gaps or none."""
    kept = draw(st.integers(0, len(shape))) if draw(st.booleans()) else len(shape)
    own = tuple(draw(st.sampled_from((size, 1))) for size in shape[len(shape) - kept :])
    order = draw(st.permutations(range(len(own))))
    return own, list(order), draw(st.booleans())


def build(view: tuple[tuple[int, ...], list[int], bool], dtype: torch.dtype, seed: int, device: Any) -> torch.Tensor:
    """The operand that :func:`views` described."""
    shape, order, gaps = view
    stored = [shape[dim] for dim in order]
    values = numbers([size * 2 if gaps else size for size in stored], dtype, seed).to(device)
    if gaps:
        values = values[tuple(slice(1, None, 2) for _ in stored)]
    return values.permute([order.index(dim) for dim in range(len(shape))])


@pytest.mark.takes_long
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_strides_are_those_of_the_fake_kernel(functional: Overload, device: torch.device, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from((0, 1, 2, 3, 5)), max_size=5), label="shape"))
    args: list[Any] = []
    for position, name in enumerate(functional.arguments):
        if name in functional.tensor_arguments:
            view = data.draw(views(shape), label=name)
            dtype = data.draw(st.sampled_from(DTYPES), label=f"{name} dtype")
            args.append(build(view, dtype, position, device))
        else:
            args.append(1.5)
    computed = functional.op(*args)
    results = reference.as_tuple(computed)
    reference.check(functional, tuple(args), computed)
    with FakeTensorMode() as mode:  # the strides depend on the device
        shadows = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in args]
        fakes = reference.as_tuple(functional.op(*shadows))
    for result, fake in zip(results, fakes, strict=True):
        assert (result.shape, result.dtype, result.stride()) == (fake.shape, fake.dtype, fake.stride())


def test_channels_last_stays_channels_last(functional: Overload, device: torch.device) -> None:
    args = tuple(
        numbers((2, 3, 4, 5), torch.float32, 0).to(device).contiguous(memory_format=torch.channels_last)
        if name in functional.tensor_arguments
        else 1.5
        for name in functional.arguments
    )
    for result in reference.as_tuple(functional.op(*args)):
        assert result.is_contiguous(memory_format=torch.channels_last)
