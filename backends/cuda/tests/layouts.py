"""Every kernel on tensors of every layout that hypothesis finds, against float64.

test_simulated.py runs this file where the kernels are simulated on the CPU, suite.py on a GPU; pytest alone does not
collect it: pytest -p opwheel_tools.testing.conftest backends/cuda/tests/layouts.py --library muladd --backend cuda
"""

import math
import os

import muladd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opwheel_tools.testing import reference

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SIZES = st.sampled_from((1, 2, 3, 5, 8, 16, 31, 32, 64))  # rows that are whole vectors, and rows that are not
SHAPES = st.lists(SIZES, max_size=4).filter(lambda sizes: math.prod(sizes) <= 20_000)
many = settings(max_examples=int(os.environ.get("TEST_EXAMPLES", "200")))


@st.composite
def layouts(draw, shape):
    """Sizes of 1, strides and an offset for a tensor that broadcasts to the shape."""
    shape = tuple(draw(st.sampled_from((size, size, size, 1))) for size in shape)[draw(st.integers(0, len(shape))) :]
    order = draw(st.one_of(st.just(range(len(shape))), st.permutations(range(len(shape)))))
    gap = draw(st.sampled_from((1, 1, 1, 2)))
    strides, step = [0] * len(shape), gap
    for dim in reversed(order):
        strides[dim] = step
        step = step * shape[dim] + (draw(st.sampled_from((0, 0, 8, 3))) if dim == order[-1] else 0)  # gaps between rows
    return shape, tuple(strides), draw(st.sampled_from((0, 0, 1, 3, 8)))


def tensor(layout, dtype, seed, device):
    """Values in a storage that ends with the last element: one further is out of bounds."""
    shape, strides, offset = layout
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    generator = torch.Generator().manual_seed(seed)
    storage = (torch.rand(last + 1, generator=generator, dtype=torch.float64) * 4 - 2).to(dtype).to(device)
    return storage.as_strided(shape, strides, offset)


@st.composite
def operands(draw, count, mixed=False):
    shape = draw(SHAPES)
    dtype = draw(st.sampled_from(DTYPES))
    return [(draw(layouts(shape)), draw(st.sampled_from(DTYPES)) if mixed else dtype, seed) for seed in range(count)]


@pytest.mark.parametrize("mixed", [False, True], ids=["one dtype", "mixed dtypes"])
@pytest.mark.parametrize("name", ["muladd", "fma", "mul", "add", "scale", "muladd_backward"])
def test_values(overloads, device, name, mixed):
    overload = overloads[name]

    @many
    @given(specs=operands(len(overload.tensor_arguments), mixed))
    def check(specs):
        rest = iter(specs)
        args = tuple(
            tensor(*next(rest), device) if argument in overload.tensor_arguments else 1.7
            for argument in overload.arguments
        )
        reference.check(overload, args, overload.op(*args))

    check()


@many
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_into_any_layout(overloads, device, data, dtype):
    shape, strides, offset = data.draw(layouts(data.draw(SHAPES)))
    a, b, c = (tensor(data.draw(layouts(shape)), dtype, seed, device) for seed in range(3))
    out = tensor((shape, strides, offset), dtype, 3, device)
    around = torch.as_strided(out, (out.untyped_storage().nbytes() // out.element_size(),), (1,), 0)
    before = around.clone()
    muladd.fma(a.expand(shape), b, c, out=out)
    reference.check(overloads["fma"], (a.expand(shape), b, c), out)
    touched = torch.zeros_like(around, dtype=torch.bool).as_strided(shape, strides, offset).fill_(True)
    outside = ~torch.as_strided(touched, around.shape, (1,), 0)
    assert torch.equal(around[outside], before[outside]), "memory between the elements was written"


@many
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_in_place(overloads, device, data, dtype):
    shape, strides, offset = data.draw(layouts(data.draw(SHAPES)))
    a, b = tensor((shape, strides, offset), dtype, 0, device), tensor(data.draw(layouts(shape)), dtype, 1, device)
    given_a = a.clone()
    muladd.muladd_(a, b.expand(shape) if data.draw(st.booleans()) else b, 0.3)
    reference.check(overloads["muladd"], (given_a, b, 0.3), a)


@pytest.mark.parametrize("count", [*range(1, 40), 255, 256, 257, 4095, 4096, 4097, 50_001])
def test_every_head_and_tail(overloads, device, count, dtype):
    for offset in range(9):
        args = tuple(tensor(((count,), (1,), offset), dtype, seed, device) for seed in range(2))
        reference.check(overloads["mul"], args, muladd.mul(*args))
