"""The sources compile for other processors than this one; nothing of it is run."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opwheel_tools.build import instruction_sets

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("aarch64-linux-gnu-g++")


@pytest.mark.parametrize(
    "source",
    [
        "core/csrc/schema.cpp",
        "backends/cpu/csrc/register.cpp",
        "backends/cpu/csrc/kernels_baseline.cpp",
        "backends/cpu/csrc/kernels_bf16.cpp",
    ],
)
def test_compiles_for_aarch64(source, monkeypatch):
    if COMPILER is None:
        pytest.skip("there is no cross compiler: apt-get install g++-aarch64-linux-gnu")
    with monkeypatch.context() as patch:
        patch.setenv("_PYTHON_HOST_PLATFORM", "linux-aarch64")
        own = instruction_sets("backends/cpu/csrc/kernels_{}.cpp", contract=True).get(source, [])
    command = [sys.executable, "-m", "muladd", "config", "--cflags"]
    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    command = [COMPILER, *shlex.split(flags), *own, "-fsyntax-only", str(ROOT / source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
