"""rms_norm of bfloat16, whose rows of 32 elements and multiples have instructions of their own on some processors.

Those take numbers below 2^-126 for zero, which the operator must not do: numbers of every size are compared with
float32 arithmetic, in units of the last place.
"""

import pytest
import torch
import transformer_ops
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.integers(-140, 125)  # exponents of two: bfloat16 has some as small as 2^-133


def numbers(shape, exponent, spread, seed):
    """Of about 2^exponent, between 2^-spread and 2^spread times that, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    powers = torch.randint(-spread, spread + 1, shape, generator=generator, dtype=torch.float64)
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * 2.0 ** (exponent + powers)
    values[torch.rand(shape, generator=generator) < 0.1] = 0
    return values.clamp(-(2.0**125), 2.0**125).bfloat16()


def expected(x, weight, eps):
    """By Llama's rule: the normalised row is rounded, then its product with the weight."""
    x = x.float()
    normalised = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return normalised.bfloat16() * weight


def places(y):
    """A number's position among all bfloat16s, and that of nan beyond them."""
    bits = torch.where(y.isnan(), torch.nan, y).view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def check(y, x, weight, eps):
    """The root may be the next float32 number: a place in each of two roundings, and what products make of it."""
    assert (places(y) - places(expected(x, weight, eps))).abs().max() <= 3


@given(
    length=st.sampled_from((31, 32, 96, 128, 416)),
    x=st.tuples(SIZES, st.integers(0, 30)),
    weight=st.tuples(SIZES, st.integers(0, 30)),
    seed=st.integers(0, 2**32),
)
def test_numbers_of_every_size(length, x, weight, seed):
    values, factors = numbers((5, length), *x, seed), numbers((length,), *weight, seed + 1)
    check(transformer_ops.rms_norm(values, factors, 1e-6), values, factors, 1e-6)
    more = numbers((5, length), *x, seed + 2)
    y, total = transformer_ops.fused_add_rms_norm(values, more, factors, 1e-6)
    assert torch.equal(places(total), places(values + more))
    check(y, total, factors, 1e-6)
    transformer_ops.fused_add_rms_norm_(values, more, factors, 1e-6)
    assert torch.equal(places(values), places(y))
    assert torch.equal(places(more), places(total))


@given(
    length=st.sampled_from((32, 96, 128, 416)),
    sizes=st.lists(st.tuples(SIZES, st.integers(0, 30)), min_size=2, max_size=6),
    gap=st.sampled_from((0, 0, 5)),
    seed=st.integers(0, 2**32),
)
def test_a_row_does_not_depend_on_its_neighbours(length, sizes, gap, seed):
    """Kernels read a row while they write the one before: each row is, to the last bit, what it is alone."""
    rows = torch.stack([numbers((length + gap,), *size, seed + i) for i, size in enumerate(sizes)])[:, :length]
    weight = numbers((length,), 0, 2, seed)
    alone = torch.cat([transformer_ops.rms_norm(row[None], weight, 1e-6) for row in rows])
    assert torch.equal(places(transformer_ops.rms_norm(rows, weight, 1e-6)), places(alone))
    assert torch.equal(places(transformer_ops.rms_norm(rows, weight, 1e-6, out=torch.empty_like(alone))), places(alone))


@pytest.mark.parametrize("size", [1.0, 1e-12, 1e-20])
def test_without_eps(size):
    """Squares of 1e-20 are below 2^-126 but not zero in float32, where rows of them have a root."""
    x = (torch.randn(3, 64) * size).bfloat16()
    weight = torch.ones(64, dtype=torch.bfloat16)
    exact = x.double() * x.double().square().mean(-1, keepdim=True).rsqrt()
    torch.testing.assert_close(transformer_ops.rms_norm(x, weight, 0.0).double(), exact, rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_number_that_is_none_spoils_its_row_alone(number):
    x, weight = torch.randn(3, 96).bfloat16(), torch.randn(96).bfloat16()
    clean = transformer_ops.rms_norm(x, weight)
    x[1, 40] = number
    found = transformer_ops.rms_norm(x, weight)
    assert torch.equal(found[[0, 2]], clean[[0, 2]])
    assert found[1, 40].isnan()
    weight[7] = number
    assert not transformer_ops.rms_norm(x, weight)[:, 7].isfinite().any()
