"""Every instruction set that this machine has gives right results: all loops and conversions."""

import os
import subprocess
import sys

import pytest

from tests.portions import first_of

CHECK = """
import itertools, muladd, torch
generator = torch.Generator().manual_seed(7)

def check(result, a, b, c):
    product = a.double() * b.double()
    error = (result.double() - (product + c)).abs()
    # One rounding to the result's type, and one of the product where that is not fused.
    half_step = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24, torch.float64: 2**-53}[a.dtype]
    bound = half_step * (1 + 2**-7) * ((product + c).abs() + product.abs() + 2**-14)
    assert bool((error <= bound).all()), (a.dtype, len(a), error.max())

def random(n, dtype, offset):
    return torch.randn(n + offset, generator=generator).to(dtype)[offset:]

dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# The longest are written with non-temporal stores: their three operands are 48 MB and more.
for dtype, n, offset in itertools.product(dtypes, (1, 3, 16, 17, 511, 512, 513, 2000, 2**23 + 5), (0, 1)):
    a, b = random(n, dtype, offset), random(n, dtype, 2 * offset)
    out = torch.empty(n + offset, dtype=dtype)[offset:]
    muladd.muladd(a, b, 0.5, out=out)
    check(out, a, b, 0.5)
    value = b[:1].clone()  # one value for the whole row
    check(muladd.muladd(a, value, 0.5), a, value.expand(n), 0.5)
    if n < 10_000:
        grad_a, grad_b = torch.ops.muladd.muladd_backward(a, b, value)
        assert torch.equal(grad_a, a * value) and torch.equal(grad_b, a * b)

# Not aligned to an element, and written with non-temporal stores.
for dtype in dtypes:
    n, size = 2**23, dtype.itemsize
    a, b = random(n, dtype, 0), random(n, dtype, 0)
    out = torch.frombuffer(bytearray(n * size + 64), dtype=dtype, offset=size // 2, count=n)
    muladd.muladd(a, b, 0.5, out=out)
    check(out, a, b, 0.5)

# Short rows, written with non-temporal stores (48 MB with the result), and one row that is broadcast to all of them:
# whole cache lines, from one on, and others.
for dtype, length in itertools.product(dtypes, (32, 96, 100)):
    rows = 3 * 2**23 // (length * dtype.itemsize)
    x = random(rows * length, dtype, 0).view(rows, length)
    scale, shift = random(length, dtype, 0), random(length, dtype, 0)
    out = torch.empty_like(x)
    muladd.muladd(x, scale, shift, out=out)
    check(out, x, scale, shift.double())

# Every 16-bit number, through the converting loop and back: exact, subnormal numbers and infinities included.
for dtype in (torch.float16, torch.bfloat16):
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    same = muladd.scale(every, 1.0)
    assert torch.equal(same.isnan(), every.isnan())
    assert torch.equal(same[~every.isnan()].view(torch.int16), every[~every.isnan()].view(torch.int16))
    # The product of two is exact in float32 and rounded once, as PyTorch rounds, also to
    # infinity and to subnormal numbers.
    for exponents in ((-4, 4), (-14, 2), (4, 9)):
        powers = 2.0 ** torch.randint(*exponents, (2, 50_000), generator=generator)
        a, b = (torch.randn(2, 50_000, generator=generator) * powers).to(dtype)
        assert torch.equal(muladd.mul(a, b), (a.float() * b.float()).to(dtype))
"""


@pytest.mark.slow
@pytest.mark.parametrize("capability", first_of(["avx2", "baseline", "avx512"]))
def test_results(capability: str) -> None:
    environment = {**os.environ, "MULADD_CPU_CAPABILITY": capability}
    subprocess.run([sys.executable, "-c", CHECK], env=environment, check=True)
