"""The device code's conversions in integer arithmetic, compiled for the host, against PyTorch's: bit for bit."""

import ctypes
import subprocess
from pathlib import Path

import opwheel_tools
import pytest
import torch

HEADER = Path(opwheel_tools.get_include(), "opwheel/detail/xpu/device/convert.h")
SOURCE = """
#include "{header}"
#include <cstddef>
using namespace opwheel::xpu;
template <auto convert, class To, class From>
void each(const From* from, To* to, size_t n) {{ for (size_t i = 0; i < n; ++i) to[i] = convert(from[i]); }}
extern "C" {{
void from_float16(const uint16_t* from, float* to, size_t n) {{ each<opwheel::xpu::from_float16>(from, to, n); }}
void from_bfloat16(const uint16_t* from, float* to, size_t n) {{ each<opwheel::xpu::from_bfloat16>(from, to, n); }}
void to_bfloat16(const float* from, uint16_t* to, size_t n) {{ each<opwheel::xpu::to_bfloat16>(from, to, n); }}
void from_float64(const uint64_t* from, float* to, size_t n) {{ each<opwheel::xpu::from_float64>(from, to, n); }}
}}
"""


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    """Call one of the conversions: a tensor in, a tensor of another dtype out."""
    folder = tmp_path_factory.mktemp("convert")
    (folder / "convert.cpp").write_text(SOURCE.format(header=HEADER))
    library = folder / "convert.so"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", str(folder / "convert.cpp"), "-o", str(library)], check=True
    )
    functions = ctypes.CDLL(str(library))

    def call(name, values, dtype):
        result = torch.empty(values.shape, dtype=dtype)
        pointers = (ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(result.data_ptr()))
        getattr(functions, name)(*pointers, ctypes.c_size_t(values.numel()))
        return result

    return call


def same_bits(mine, theirs):
    """Equal bits, and nan for nan."""
    integer = {2: torch.int16, 4: torch.int32}[mine.element_size()]
    return bool(((mine.view(integer) == theirs.view(integer)) | (mine.isnan() & theirs.isnan())).all())


EVERY_16_BITS = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_short_number(convert, dtype):
    values = EVERY_16_BITS.view(dtype)
    name = "from_" + str(dtype).removeprefix("torch.")
    assert same_bits(convert(name, values, torch.float32), values.float())


def test_to_bfloat16(convert):
    """Every number with 18 leading bits: all ties, and both sides of them."""
    leading = torch.arange(-(2**17), 2**17, dtype=torch.int64) << 14
    for low in (0, 1, 2**14 - 1):
        values = (leading + low).to(torch.int32).view(torch.float32)
        assert same_bits(convert("to_bfloat16", values, torch.bfloat16), values.bfloat16())


def test_from_float64(convert):
    """Every float32 exponent and far beyond, subnormals included: ties, their neighbours, random fractions."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.arange(0, 2048, dtype=torch.int64) << 52
    kept = torch.randint(0, 2**23, (64,), generator=generator, dtype=torch.int64) << 29
    kept = torch.cat([kept, torch.tensor([0, 1, 2**23 - 1, 2**22]) << 29])
    lost = torch.tensor([0, 1, 2**28 - 1, 2**28, 2**28 + 1, 2**29 - 1])
    sign = torch.tensor([0, -(2**63)])
    bits = (exponents.view(-1, 1, 1, 1) + kept.view(-1, 1, 1) + lost.view(-1, 1) + sign).reshape(-1)
    random = torch.randint(-(2**63), 2**63 - 1, (500_000,), generator=generator)
    # Around the smallest subnormal numbers, where rounding decides between zero and something.
    tiny = torch.tensor([2.0**-150, 2.0**-149, 1.5 * 2.0**-149, 2.0**-151], dtype=torch.float64).view(torch.int64)
    tiny = (tiny.view(-1, 1) + torch.arange(-3, 4)).reshape(-1)
    values = torch.cat([bits, random, tiny]).view(torch.float64)
    assert same_bits(convert("from_float64", values, torch.float32), values.float())
