"""exp, sigmoid, tanh, erf and log1p of vectors (opwheel/detail/cpu/vector_math.h): the errors that the header names."""

import ctypes
import math
import subprocess

import mpmath
import opwheel_tools
import pytest
import torch
from opwheel_tools.build import instruction_sets

SOURCE = """
#define OPWHEEL_ISA tested
#include "opwheel/cpu/vectorized_rows.h"
namespace isa = opwheel::cpu::tested;

template <class T, class F>
static void each(const void* x, void* y, int64_t n, const F& function) {
  isa::for_vectors<T>(n, [&](auto at) {
    isa::put(static_cast<T*>(y), at, function(isa::get(static_cast<const T*>(x), at)));
  });
}
#define FUNCTION(name, ...)                                                                                    \\
  extern "C" void name##_float(const void* x, void* y, int64_t n) {                                            \\
    each<float>(x, y, n, [](auto value) { return isa::__VA_ARGS__(value); });                                  \\
  }                                                                                                            \\
  extern "C" void name##_double(const void* x, void* y, int64_t n) {                                           \\
    each<double>(x, y, n, [](auto value) { return isa::__VA_ARGS__(value); });                                 \\
  }
FUNCTION(exp_of_negative, exp_of_negative)
FUNCTION(sigmoid, sigmoid)
FUNCTION(tanh, tanh)
FUNCTION(erf, erf)
FUNCTION(log1p, log1p)
FUNCTION(exp_of_negative_for_bfloat16, exp_of_negative_for<isa::BFloat16>)
FUNCTION(sigmoid_for_bfloat16, sigmoid_for<isa::BFloat16>)
extern "C" void bfloat16_float(const void* x, void* y, int64_t n) {
  isa::for_vectors<float>(n, [&](auto at) {
    isa::put(static_cast<isa::BFloat16*>(y), at, isa::get(static_cast<const float*>(x), at));
  });
}
extern "C" void rounded_float(const void* x, void* y, int64_t n) {
  each<float>(x, y, n, [](auto value) { return isa::rounded<isa::BFloat16>(value); });
}
extern "C" void rounded_roughly_float(const void* x, void* y, int64_t n) {
  each<float>(x, y, n, [](auto value) { return isa::rounded_roughly<isa::BFloat16>(value); });
}
"""
SETS = {"DEFAULT": ("baseline",), "AVX2": ("baseline", "avx2"), "AVX512": ("baseline", "avx2", "avx512")}
HERE = SETS.get(torch.backends.cpu.get_cpu_capability(), ("baseline",))
LEAST = 4.5e-38  # the header's: smaller results are zero
BOUNDS = {"exp_of_negative": 2, "sigmoid": 4}  # units in the last place


@pytest.fixture(
    scope="module",
    params=[(name, fused) for name in HERE for fused in (False, True)],
    ids=lambda param: f"{param[0]}{'-fused' if param[1] else ''}",
)
def functions(request, tmp_path_factory):
    """The functions, compiled for an instruction set, with and without fused multiply-add."""
    name, fused = request.param
    folder = tmp_path_factory.mktemp("vector_math")
    (folder / "functions.cpp").write_text(SOURCE)
    flags = instruction_sets("{}", contract=fused)[name]
    command = ["g++", "-std=c++20", "-O3", "-fPIC", "-shared", f"-I{opwheel_tools.get_include()}", *flags]
    subprocess.run([*command, str(folder / "functions.cpp"), "-o", str(folder / "functions.so")], check=True)
    library = ctypes.CDLL(str(folder / "functions.so"))

    def call(function, x, dtype=None):
        y = torch.empty_like(x, dtype=dtype)
        arguments = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(x.numel())
        library[f"{function}_{'float' if x.dtype is torch.float32 else 'double'}"](*arguments)
        return y

    return call


@pytest.fixture(scope="module")
def floats():
    """A million numbers of every sign and exponent, subnormal ones too, and where the functions are steep."""
    bits = torch.arange(-(2**31), 2**31, 4099).to(torch.int32)
    everywhere = bits.view(torch.float32)
    return torch.cat([everywhere[everywhere.isfinite()], torch.linspace(-90, 20, 300_001), torch.zeros(1)])


def units(got, want):
    """The error in units in the last place of a float32."""
    _, exponent = torch.frexp(want)
    return (got.double() - want).abs() / torch.ldexp(torch.ones_like(want), exponent - 24)


@pytest.mark.parametrize("function", BOUNDS)
def test_units_in_the_last_place(functions, floats, function):
    reference = torch.exp if function == "exp_of_negative" else torch.sigmoid
    x = floats[floats <= 0] if function == "exp_of_negative" else floats
    got, want = functions(function, x), reference(x.double())
    large = want > LEAST
    assert units(got[large], want[large]).max() <= BOUNDS[function]
    assert got[~large].max() <= LEAST  # zero, or right at the edge
    assert got[x < -87].count_nonzero() == 0


@pytest.mark.parametrize("function", BOUNDS)
def test_relative_error_for_bfloat16(functions, floats, function):
    reference = torch.exp if function == "exp_of_negative" else torch.sigmoid
    x = floats[floats <= 0] if function == "exp_of_negative" else floats
    got, want = functions(f"{function}_for_bfloat16", x), reference(x.double())
    large = want > LEAST
    assert ((got.double() - want).abs() / want)[large].max() <= 2**-12
    assert got[~large].max() <= LEAST * (1 + 2**-12)


def test_bfloat16_is_rounded_as_pytorch_does_it(functions, floats):
    nans = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, -0x7FFFFF], dtype=torch.int32).view(torch.float32)
    x = torch.cat([floats, torch.tensor([float("inf"), -float("inf")]), nans])
    expected = x.bfloat16()
    torch.testing.assert_close(functions("bfloat16", x, torch.bfloat16), expected, rtol=0, atol=0, equal_nan=True)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    x = torch.cat([x[: -len(nans)], every])
    expected = x.bfloat16().float()
    torch.testing.assert_close(functions("rounded", x), expected, rtol=0, atol=0, equal_nan=True)
    roughly = functions("rounded_roughly", x)  # ties may go the other way
    torch.testing.assert_close(roughly.bfloat16().float(), roughly, rtol=0, atol=0, equal_nan=True)
    distances = [torch.where(y == x, 0, (y.double() - x.double()).abs()) for y in (roughly, expected)]
    torch.testing.assert_close(*distances, rtol=0, atol=0, equal_nan=True)


def test_units_of_tanh(functions, floats):
    got, want = functions("tanh", floats), torch.tanh(floats.double())
    normal = want.abs() > LEAST
    assert units(got[normal], want[normal]).max() <= 6
    assert (got[~normal].double() - want[~normal]).abs().max() <= 1.2e-38  # subnormal: as the processor has them


def test_error_of_erf(functions, floats):
    error = (functions("erf", floats).double() - torch.erf(floats.double())).abs()
    assert error.max() <= 1.5e-7


def test_units_of_log1p(functions, floats):
    x = floats[floats >= 0]
    want = torch.log1p(x.double())
    normal = want > LEAST
    assert units(functions("log1p", x)[normal], want[normal]).max() <= 1
    assert (functions("log1p", x)[~normal].double() - want[~normal]).abs().max() <= 1.2e-38


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_values(functions, dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, -inf, nan, inf], dtype=dtype)
    for function in ("sigmoid", "tanh", "erf"):
        expected = getattr(torch, function)(x)
        torch.testing.assert_close(functions(function, x), expected, equal_nan=True, rtol=1e-6, atol=1e-7)
    numbers = torch.tensor([0.0, nan, inf], dtype=dtype)
    torch.testing.assert_close(functions("log1p", numbers), numbers, equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(functions("exp_of_negative", x[:4]), torch.exp(x[:4]), equal_nan=True, rtol=0, atol=0)


def exact(function, x):
    """To 40 digits."""
    with mpmath.workdps(40):
        if function == "log1p":
            return mpmath.log1p(mpmath.mpf(x))
        exp = mpmath.exp(mpmath.mpf(x))
        return exp if function == "exp_of_negative" else exp / (1 + exp)


@pytest.mark.parametrize("function", BOUNDS)
def test_units_of_doubles(functions, function):
    """Of subnormal results too."""
    generator = torch.Generator().manual_seed(0)
    draws = [-(torch.rand(1000, dtype=torch.float64, generator=generator) * limit) for limit in (1e-9, 1, 40, 746)]
    edges = -torch.arange(1000, dtype=torch.float64) * (math.log(2) / 2)  # where exp's remainder is largest
    x = torch.cat([*draws, edges])
    for value, got in zip(x.tolist(), functions(function, x).tolist(), strict=True):
        want = exact(function, value)
        assert abs(mpmath.mpf(got) - want) <= 2 * math.ulp(float(want)), value


def test_units_of_log1p_of_doubles(functions):
    generator = torch.Generator().manual_seed(0)
    x = 10 ** (torch.rand(3000, dtype=torch.float64, generator=generator) * 40 - 20)
    around = 2**0.5 * 2 ** torch.arange(20, dtype=torch.float64) - 1  # where the exponent changes
    x = torch.cat(
        [
            x,
            around,
            around.nextafter(torch.zeros((), dtype=torch.float64)),
            torch.tensor([1e300, 5e-324], dtype=torch.float64),
        ]
    )
    for value, got in zip(x.tolist(), functions("log1p", x).tolist(), strict=True):
        want = exact("log1p", value)
        assert abs(mpmath.mpf(got) - want) <= 2 * math.ulp(float(want)), value


def test_vectors_of_double(functions):
    x = torch.cat([torch.linspace(-800, 800, 10_001, dtype=torch.float64), torch.linspace(-6, 6, 10_001).double()])
    for function in ("sigmoid", "tanh", "erf"):
        torch.testing.assert_close(functions(function, x), getattr(torch, function)(x), rtol=1e-15, atol=1e-300)
    negative = x[x <= 0]
    torch.testing.assert_close(functions("exp_of_negative", negative), torch.exp(negative), rtol=1e-15, atol=1e-320)
