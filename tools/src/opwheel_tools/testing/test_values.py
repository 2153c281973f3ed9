"""Every operator against float64: dtypes, layouts, broadcasting, sizes, special values."""

from __future__ import annotations

import itertools

import pytest
import torch
from opwheel.dispatch import Elementwise
from opwheel.dispatch.overload import Overload

from . import reference
from .samples import DTYPES, LAYOUTS, arguments, broadcasts, numbers

pytestmark = pytest.mark.subsystem("values")

# Around the widths of vector registers, unrolled loops, thread blocks and the grain of parallel loops.
SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 256, 257, 1023, 4097, 32769, 70001)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(functional: Overload, dtype: torch.dtype, layout: str, device: torch.device) -> None:
    for layouts in ((layout,), (layout, "contiguous"), ("contiguous", layout)):
        args = arguments(functional, (2, 3, 4, 5), dtype, device, layouts=layouts)
        reference.check(functional, args, functional.op(*args))


def test_broadcasting(functional: Overload, dtype: torch.dtype, device: torch.device) -> None:
    for shapes in broadcasts(len(functional.tensor_arguments)):
        args = arguments(functional, shapes, dtype, device)
        reference.check(functional, args, functional.op(*args))


def test_sizes(functional: Overload, dtype: torch.dtype, device: torch.device) -> None:
    for size in SIZES:
        args = arguments(functional, (size,), dtype, device)
        reference.check(functional, args, functional.op(*args))


@pytest.mark.parametrize("shape", [(1, 65), (15, 64), (33, 63), (5, 32, 130)], ids=str)
def test_transposed(functional: Overload, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    """One operand or all of them, of sizes around those that kernels divide them into, next to one of float64."""
    for layouts in (("transposed", "contiguous"), ("contiguous", "transposed"), ("transposed",)):
        args = arguments(functional, shape, dtype, device, layouts=layouts)
        reference.check(functional, args, functional.op(*args))
    wide = tuple(value.double() if isinstance(value, torch.Tensor) and value is args[0] else value for value in args)
    reference.check(functional, wide, functional.op(*wide))


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded"])
def test_several_threads(functional: Overload, layout: str, device: torch.device) -> None:
    """Each begins in the middle of a row of operands whose dimensions cannot be taken for one."""
    args = arguments(functional, (5, 131, 257), torch.float32, device, layouts=(layout, "contiguous"))
    reference.check(functional, args, functional.op(*args))


def test_misaligned(functional: Overload, dtype: torch.dtype, device: torch.device) -> None:
    for offset in range(1, 9):
        args = arguments(functional, (150 + offset,), dtype, device)
        shifted = tuple(value[offset:] if isinstance(value, torch.Tensor) else value for value in args)
        reference.check(functional, shifted, functional.op(*shifted))


@pytest.mark.parametrize("shape", [(40, 70), (3, 300), (300, 3), (5, 1, 129)], ids=str)
def test_rows_and_columns(
    functional: Overload, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    """Operands that are repeated along rows or along columns, in every combination."""
    row, column = (1,) * (len(shape) - 1) + shape[-1:], (*shape[:-1], 1)
    for shapes in itertools.product((shape, row, column), repeat=len(functional.tensor_arguments)):
        args = arguments(functional, shapes, dtype, device)
        reference.check(functional, args, functional.op(*args))


def test_mixed_dtypes(functional: Overload, device: torch.device) -> None:
    count = len(functional.tensor_arguments)
    for dtypes in itertools.product(DTYPES, repeat=count):
        for shapes in ([(3, 700)] * count, [(7, 5), *[()] * (count - 1)], [(), *[(7, 5)] * (count - 1)]):
            plain = arguments(functional, shapes, torch.float64, device)
            dtype = iter(dtypes)
            args = tuple(value.to(next(dtype)) if isinstance(value, torch.Tensor) else value for value in plain)
            reference.check(functional, args, functional.op(*args))


def test_special_values(functional: Overload, dtype: torch.dtype, device: torch.device) -> None:
    """nan, infinities, signed zeros, subnormals and extremes, in every combination."""
    info = torch.finfo(dtype)
    subnormal = info.smallest_normal * info.eps * 3
    special = [
        float("nan"),
        float("inf"),
        float("-inf"),
        0.0,
        -0.0,
        1.0,
        -1.5,
        subnormal,
        -subnormal,
        info.max,
        info.min,
    ]
    grid = torch.cartesian_prod(*[torch.tensor(special, dtype=torch.float64)] * len(functional.tensor_arguments))
    columns = iter(grid.reshape(grid.shape[0], -1).T.to(dtype).to(device).contiguous())
    tensors = {name: next(columns) for name in functional.tensor_arguments}
    for number in (2.0, -0.0):
        args = tuple(tensors.get(name, number) for name in functional.arguments)
        reference.check_exact(functional, args, functional.op(*args))


def test_negative_bit(functional: Overload, device: torch.device) -> None:
    """The imaginary part of a conjugate is a lazily negated tensor."""
    args = tuple(
        torch.complex(numbers((9,), torch.float64, 1), value.cpu()).to(device).conj().imag
        if isinstance(value, torch.Tensor)
        else value
        for value in arguments(functional, (9,), torch.float64, device)
    )
    plain = tuple(value.resolve_neg() if isinstance(value, torch.Tensor) else value for value in args)
    reference.check(functional, plain, functional.op(*args))


def test_same_tensor_for_every_argument(functional: Overload, dtype: torch.dtype, device: torch.device) -> None:
    first = arguments(functional, (3, 50), dtype, device)[0]
    args = tuple(first if name in functional.tensor_arguments else 1.5 for name in functional.arguments)
    reference.check(functional, args, functional.op(*args))


@pytest.mark.huge
def test_more_than_2_to_the_31_elements(functional: Overload, device: torch.device) -> None:
    size = 2**31 + 7
    one = torch.ones((1,), dtype=torch.float16, device=device)
    # float16 counts no further than 65504; a whole number of sevens fits, and the rest of the last ones.
    long = torch.arange(7, device=device).to(torch.float16).repeat(size // 7 + 1)[:size]
    args = tuple(
        (long if name == functional.tensor_arguments[0] else one) if name in functional.tensor_arguments else 2.0
        for name in functional.arguments
    )
    tail = tuple(value[-9:] if isinstance(value, torch.Tensor) and value.numel() > 1 else value for value in args)
    results, expected = functional.op(*args), functional.op(*tail)
    for result, part in zip(reference.as_tuple(results), reference.as_tuple(expected), strict=True):
        assert torch.equal(result[-9:], part)


@pytest.mark.device_independent
def test_sums_pass_through_what_is_linear(functional: Overload, device: torch.device) -> None:
    """DTensor relies on it where a sum is still spread over processes."""
    args = arguments(functional, (3, 4), torch.float64, device)
    named = dict(zip(functional.arguments, args, strict=True))
    whole = reference.as_tuple(functional.op(*args))
    assert isinstance(functional.rule, Elementwise)
    for linear in functional.rule.linear:
        parts = [{name: v * share if name in linear else v for name, v in named.items()} for share in (0.25, 0.75)]
        results = [reference.as_tuple(functional.op(*part.values())) for part in parts]
        for one, other, expected in zip(*results, whole, strict=True):
            torch.testing.assert_close(one + other, expected)
