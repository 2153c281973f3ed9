"""The device images inside of the shipped library: what they ask of a GPU, and what happens where they do not fit."""

import os
import struct
import subprocess
import sys
from collections import Counter
from importlib import util
from pathlib import Path

import muladd
import pytest

ROOT = Path(__file__).parents[3]
MAGIC = b"\x03\x02\x23\x07"
# What stands in front of the code: OpExtension, OpExtInstImport, OpMemoryModel, OpEntryPoint, OpCapability.
PREAMBLE = {10, 11, 14, 15, 17}
FLOATS = {8: "Float16Buffer", 9: "Float16", 10: "Float64"}  # of SPIR-V's capabilities
DTYPES = ("float16", "bfloat16", "float32", "float64")
CHECK = """
import simulated_xpu, torch, muladd
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    x = torch.arange(100, device="xpu").to(dtype)
    try:
        ok = torch.equal(muladd.muladd(x, x, 1.0).cpu().double(), (x.cpu().double() ** 2 + 1).to(dtype).double())
        print(dtype, "right" if ok else "wrong")
    except RuntimeError as error:
        print(dtype, "refused:", " ".join(str(error).split()))
"""


@pytest.fixture(scope="module")
def package():
    return Path(util.find_spec("muladd_sycl").origin).parent


@pytest.fixture(scope="module")
def library(package):
    return (package / "libmuladd_sycl.so").read_bytes()


@pytest.fixture
def with_library(package, tmp_path):
    """Run CHECK with other bytes in place of the library."""

    def run(content):
        folder = tmp_path / "muladd_sycl"
        folder.mkdir()
        (folder / "__init__.py").write_bytes((package / "__init__.py").read_bytes())
        (folder / "libmuladd_sycl.so").write_bytes(content)
        return check(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT / 'tests'}")

    return run


def check(**environment):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")} | environment
    result = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert result.returncode == 0, result.stderr
    return dict(line.split(maxsplit=1) for line in result.stdout.splitlines()), result.stderr


def modules(library):
    """Capabilities and entry points of every SPIR-V module in the bytes."""
    start = library.find(MAGIC)
    while start >= 0:
        capabilities, entries, at = set(), [], start + 20
        while True:
            (word,) = struct.unpack_from("<I", library, at)
            length, opcode = word >> 16, word & 0xFFFF
            if opcode not in PREAMBLE:
                break
            if opcode == 17:
                capabilities.add(struct.unpack_from("<I", library, at + 4)[0])
            if opcode == 15:
                entries.append(library[at + 12 : library.index(b"\0", at + 12)].decode())
            at += length * 4
        yield capabilities, entries
        start = library.find(MAGIC, at)


def test_each_image_uses_no_other_dtype_than_its_own(library):
    operators = {overload.operator.name for overload in muladd.library.overloads.values()}
    count = 2 * len(operators)  # for contiguous operands, and for any
    found = [module for module in modules(library) if module[1]]
    assert all(len(entries) == 1 for _, entries in found)
    kernels = Counter(entries[0] for _, entries in found)
    assert len(kernels) == count
    assert set(kernels.values()) == {len(DTYPES)}
    floats = Counter(tuple(sorted(FLOATS[c] for c in capabilities & FLOATS.keys())) for capabilities, _ in found)
    assert floats.pop(("Float64",)) == count
    assert floats.pop(()) == 2 * count  # float32 and bfloat16
    assert sum(floats.values()) == count
    assert all("Float64" not in names for names in floats)


def test_right_and_without_a_word(with_library, library):
    results, messages = with_library(library)
    assert set(results.values()) == {"right"}
    assert "libmuladd_sycl.so" not in messages


def test_compiles_the_source_where_an_image_cannot_be_loaded_and_says_so(with_library, library):
    results, messages = with_library(library.replace(MAGIC, b"\x00\x02\x23\x07"))
    assert set(results.values()) == {"right"}
    warnings = [line for line in messages.splitlines() if line.startswith("libmuladd_sycl.so:")]
    assert len(warnings) == len(DTYPES)
    for dtype in DTYPES:
        assert any(f"device image for {dtype} cannot be loaded" in line for line in warnings)
    assert all("compiling its source instead" in line for line in warnings)


def test_says_both_reasons_where_the_source_does_not_compile_either(with_library, library):
    source = b"namespace opwheel::xpu {"
    assert source in library
    broken = library.replace(source, source.replace(b"{", b"("))
    results, _ = with_library(broken.replace(MAGIC, b"\x00\x02\x23\x07"))
    for answer in results.values():
        assert answer.startswith("refused:")
        assert "cannot be loaded" in answer
        assert "does not compile" in answer


ASPECT = """
// Takes the place of sycl::device::has: a device that lacks one aspect.
extern "C" bool _ZNK4sycl3_V16device3hasENS0_6aspectE(const void*, int aspect) {{ return aspect != {}; }}
"""


@pytest.mark.parametrize(("aspect", "number", "dtype"), [("fp16", 5, "float16"), ("fp64", 6, "float64")])
def test_a_device_without_a_dtype_refuses_it_and_runs_the_others(tmp_path, aspect, number, dtype):
    (tmp_path / "aspect.cpp").write_text(ASPECT.format(number))
    preload = tmp_path / "aspect.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(tmp_path / "aspect.cpp"), "-o", str(preload)], check=True)
    results, _ = check(LD_PRELOAD=str(preload))
    refused = results.pop(f"torch.{dtype}")
    assert "refused:" in refused
    assert f"aspect::{aspect}" in refused
    assert ".to(torch.float32)" in refused
    assert set(results.values()) == {"right"}


def test_the_runtime_s_cache_is_left_alone(library):
    assert b"SYCL_CACHE" not in library
