"""Results have exactly the strides that PyTorch's own operators give, size-1 and empty dimensions included."""

import muladd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

PAIRS = {
    1: (lambda x: muladd.scale(x, 2.0), torch.neg),
    2: (muladd.mul, torch.mul),
    3: (muladd.fma, torch.addcmul),
}


@st.composite
def operands(draw, count):
    """Tensors of one shape up to broadcasting; each with its own order of dimensions, gaps and repeated dimensions."""
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
        tensors.append(torch.empty_strided(own, strides, dtype=torch.float32))
    return tensors


@pytest.mark.parametrize("count", PAIRS)
@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_strides(count, data):
    tensors = data.draw(operands(count))
    mine, theirs = (function(*tensors) for function in PAIRS[count])
    assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())
