"""The kernels' index arithmetic, on the CPU."""

import ctypes
import math
import subprocess
from pathlib import Path

import opwheel_tools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opwheel._build.toolchain import find_torch

HERE = Path(__file__).parent
LIMIT = 2**31


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    library = tmp_path_factory.mktemp("index") / "libindex.so"
    command = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    include = [f"-I{opwheel_tools.get_include()}", f"-isystem{find_torch().include}"]
    subprocess.run([*command, *include, str(HERE / "simulated/index.cpp"), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.quotient.argtypes = [ctypes.c_uint32, ctypes.c_uint32]
    loaded.quotient.restype = ctypes.c_uint32
    return loaded


@given(dividend=st.integers(0, LIMIT - 1), divisor=st.integers(1, LIMIT))
@example(dividend=LIMIT - 1, divisor=1)
@example(dividend=LIMIT - 1, divisor=LIMIT)
@example(dividend=LIMIT - 1, divisor=LIMIT - 1)
@example(dividend=LIMIT - 2, divisor=LIMIT - 1)
def test_division(index, dividend, divisor):
    assert index.quotient(dividend, divisor) == dividend // divisor


@given(quotient=st.integers(0, 2**16), divisor=st.integers(1, 2**15), below=st.booleans())
def test_division_next_to_multiples(index, quotient, divisor, below):
    dividend = max(quotient * divisor - below, 0)
    assert index.quotient(dividend, divisor) == dividend // divisor


@given(dividend=st.integers(0, LIMIT - 1), power=st.integers(0, 31), distance=st.integers(-2, 2))
def test_division_by_powers_of_two_and_their_neighbours(index, dividend, power, distance):
    divisor = min(max(2**power + distance, 1), LIMIT)
    assert index.quotient(dividend, divisor) == dividend // divisor


@st.composite
def walks(draw):
    """Sizes, and strides of three operands, up to the limits of a launch."""
    sizes = draw(st.lists(st.one_of(st.integers(2, 9), st.integers(2, 70_000)), min_size=1, max_size=31))
    while math.prod(sizes) > LIMIT:
        sizes.pop()
    if not sizes:
        sizes = [LIMIT]
    budget = [2**32 - 8] * 3
    strides = []
    for size in sizes:
        row = []
        for operand in range(3):
            stride = draw(st.integers(0, budget[operand] // (size - 1)))
            budget[operand] -= stride * (size - 1)
            row.append(stride)
        strides.append(row)
    return sizes, strides


@given(walk=walks(), data=st.data())
def test_every_element_is_located(index, walk, data):
    sizes, strides = walk
    total = math.prod(sizes)
    number = data.draw(st.one_of(st.just(total - 1), st.integers(0, total - 1)))
    expected, rest = [0] * 3, number
    for size, row in zip(sizes, strides, strict=True):
        rest, coordinate = divmod(rest, size)
        expected = [offset + coordinate * stride for offset, stride in zip(expected, row, strict=True)]
    offsets = (ctypes.c_uint32 * 3)()
    flat = [stride for row in strides for stride in row]
    index.locate(
        len(sizes), (ctypes.c_uint32 * len(sizes))(*sizes), (ctypes.c_uint32 * len(flat))(*flat),
        ctypes.c_uint32(number), offsets,
    )  # fmt: skip
    assert list(offsets) == expected
