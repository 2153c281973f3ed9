"""Results have exactly the strides that PyTorch's own operators give, size-1 and empty dimensions included.

With mixed dtypes those depend on the device: a CPU converts inputs first, and looks at the copies.
"""

import itertools

import muladd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opwheel_tools.testing.samples import DTYPES

PAIRS = {
    1: (lambda x: muladd.scale(x, 2.0), torch.neg),
    2: (muladd.mul, torch.mul),
    3: (muladd.fma, torch.addcmul),
}


@st.composite
def operands(draw, count):
    """Tensors of one shape up to broadcasting; each with its own dtype, order of dimensions, gaps and repetitions."""
    shape = tuple(draw(st.lists(st.sampled_from((0, 1, 1, 2, 3, 4)), max_size=5)))
    tensors = []
    for _ in range(count):
        own = tuple(draw(st.sampled_from((size, size, size, 1))) for size in shape)[draw(st.integers(0, len(shape))) :]
        order = draw(st.permutations(range(len(own))))
        gap = draw(st.sampled_from((1, 1, 2)))
        strides, following = [0] * len(own), gap
        for dim in order:
            strides[dim] = 0 if draw(st.integers(0, 9)) == 0 else following
            following *= max(own[dim], 1)
        tensors.append(torch.empty_strided(own, strides, dtype=draw(st.sampled_from(DTYPES))))
    return tensors


def agree(function, reference, tensors):
    mine, theirs = function(*tensors), reference(*tensors)
    assert (mine.shape, mine.dtype, mine.stride()) == (theirs.shape, theirs.dtype, theirs.stride())


@pytest.mark.parametrize("count", PAIRS)
@settings(max_examples=600)
@given(data=st.data())
def test_strides(count, data):
    agree(*PAIRS[count], data.draw(operands(count)))


@pytest.mark.parametrize("count", PAIRS)
@settings(max_examples=200)
@given(data=st.data())
def test_elsewhere_strides_do_not_depend_on_dtypes(count, data):
    function, _ = PAIRS[count]
    tensors = data.draw(operands(count))
    mixed, same = (
        [torch.empty_strided(x.shape, x.stride(), dtype=dtype or x.dtype, device="meta") for x in tensors]
        for dtype in (None, torch.float32)
    )
    assert function(*mixed).stride() == function(*same).stride()


SIZES = [shape for rank in (2, 3) for shape in itertools.product((1, 2, 3), repeat=rank) if 1 in shape]


@pytest.mark.parametrize("other", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strides_with_dimensions_of_size_1(dtype, other):
    """All of them, for each pair of dtypes, in each order of dimensions, with gaps and without."""
    for shape in SIZES:
        layouts = []
        for order, gap in itertools.product(itertools.permutations(range(len(shape))), (1, 2)):
            strides, following = [0] * len(shape), gap
            for dim in order:
                strides[dim] = following
                following *= shape[dim]
            layouts.append(strides)
        for first, second in itertools.product(layouts, repeat=2):
            pair = torch.empty_strided(shape, first, dtype=dtype), torch.empty_strided(shape, second, dtype=other)
            agree(muladd.mul, torch.mul, pair)
