"""What several kernels say alike. ``at`` are offsets from a pointer, ``mask`` which of them are there."""

import triton
import triton.language as tl

from .._interpreted import IS_INTERPRETED

_IS_INTERPRETED: tl.constexpr = tl.constexpr(IS_INTERPRETED)


@triton.jit
def rounded(value, DTYPE: tl.constexpr):
    """The value in another dtype, rounded to the nearest."""
    if _IS_INTERPRETED and tl.bfloat16 == DTYPE:
        # The interpreter cuts off what the compiler rounds: here nothing is left to cut off.
        bits = value.to(tl.uint32, bitcast=True)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        value = tl.where(value == value, even.to(tl.float32, bitcast=True), value)
    return value.to(DTYPE)


@triton.jit
def load(data, at, mask, COMPUTE: tl.constexpr):
    """In the dtype that is computed in; 0 where nothing is."""
    return tl.load(data + at, mask=mask, other=0).to(COMPUTE)


@triton.jit
def store(data, at, mask, value):
    """Rounded to the dtype of what is stored there."""
    tl.store(data + at, rounded(value, data.dtype.element_ty), mask=mask)


@triton.jit
def dot(a, b, COMPUTE: tl.constexpr):
    """The product of two matrices, summed up in the dtype that is computed in; float32 factors are not cut to TF32."""
    if _IS_INTERPRETED:  # which would multiply bfloat16's bits
        a = a.to(COMPUTE)
        b = b.to(COMPUTE)
    return tl.dot(a, b, input_precision="ieee", out_dtype=COMPUTE)


@triton.jit
def expm1(x):
    """exp(x) - 1, with all digits next to zero: (y - 1) v / log(y) with y = exp(v).

    Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1.
    """
    is_near = tl.abs(x) < 2
    v = tl.where(is_near, x, 1.0)
    y = tl.exp(v)
    near = tl.where(y == 1, v, (y - 1) * v / tl.log(tl.where(y == 1, 2.0, y)))
    return tl.where(is_near, near, tl.exp(x) - 1)


@triton.jit
def log1p(x):
    """log(1 + x) of x >= 0, with all digits next to zero: log(y) x / (y - 1) with y = 1 + x (Higham, problem 1.5)."""
    y = 1 + x
    return tl.where(y == 1, x, tl.log(y) * (x / tl.where(y == 1, 1.0, y - 1)))


@triton.jit
def tanh(x):
    """Next to zero x + x^3 p(x^2), or by exp(2 x) - 1, so that all digits are right there; else 2 sigmoid(2 x) - 1.

    The polynomial is a weighted least-squares fit at Chebyshev nodes.
    """
    s = x * x
    if x.dtype == tl.float64:
        less_one = expm1(tl.where(s < 0.36, 2 * x, 1.0))
        near = less_one / (less_one + 2)
    else:
        p = s * -5.89394523e-3 + 2.07946170e-2
        p = p * s - 5.37832938e-2
        p = p * s + 1.33319154e-1
        p = p * s - 3.33332986e-1
        near = x + x * s * p
    return tl.where(s < 0.36, near, 2 * tl.sigmoid(2 * x) - 1)


@triton.jit
def weighted(grad, weight, at, mask, OFFSET: tl.constexpr, COMPUTE: tl.constexpr):
    """A norm's gradient, times what its normalised row was multiplied by."""
    value = load(grad, at, mask, COMPUTE)
    if weight is not None:
        value *= load(weight, at, mask, COMPUTE) + OFFSET
    return value


@triton.jit
def elements(columns, BLOCK: tl.constexpr):
    """For element-wise kernels: the row of this program, and its columns. In 64 bits: there may be more than 2^31."""
    blocks = tl.cdiv(columns, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    return program // blocks, program % blocks * BLOCK + tl.arange(0, BLOCK)
