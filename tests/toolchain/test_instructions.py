"""Instruction counts against the committed record: slower code is found although no clock is asked."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.instructions import callgrind, record
from benchmarks.instructions.statements import STATEMENTS

PROMISED = "callgrind" in os.environ.get("MULADD_REQUIRE", "").split(",")
KEPT = record.load(record.PATH)
NAMES = {one.name for one in STATEMENTS}
KERNELS = {name for name in NAMES if name.startswith("kernel/")}


def skip(reason):
    if PROMISED:
        pytest.fail(f"MULADD_REQUIRE promises callgrind, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def counts():
    if shutil.which("valgrind") is None:
        skip("there is no valgrind (Debian: apt-get install valgrind)")
    return callgrind.count()


@pytest.mark.slow  # half a minute: PyTorch is imported under valgrind
def test_counts(counts):
    assert set(counts) == {"avx2", "baseline"}
    assert set(counts["avx2"]) == NAMES
    assert set(counts["baseline"]) == KERNELS
    assert all(count > 100 for named in counts.values() for count in named.values())


@pytest.mark.slow
def test_no_more_than_recorded(counts):
    if different := record.differences(KEPT, record.environment()):
        skip(f"the record is of another environment: {'; '.join(different)}. To record this one: {record.UPDATE}")
    assert record.compare(KEPT, counts) == []


@pytest.mark.slow
def test_slower_kernels_are_found(counts):
    """The kernels without AVX2 are right and slower; as if they had been chosen by mistake."""
    here = replace(KEPT, counts={"avx2": counts["avx2"]})
    slower = {"avx2": counts["avx2"] | counts["baseline"]}
    found = record.compare(here, slower)
    assert len(found) == len(KERNELS)
    assert all(f"avx2 {name}: " in finding for name, finding in zip(sorted(KERNELS), found, strict=True))


def test_without_valgrind(tmp_path):
    command = [sys.executable, "-m", "benchmarks.instructions"]
    environment = {**os.environ, "PATH": str(tmp_path), "CXX": shutil.which("g++") or "g++"}
    result = subprocess.run(command, cwd=callgrind.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "apt-get install valgrind" in result.stderr
