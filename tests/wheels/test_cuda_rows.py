"""Operators by rows on CUDA, made of the SDK's row loops: compiled by nvcc, run by the kit on simulated devices."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import opwheel
import pytest

from tests.general import cpp_library
from tests.mutants.mutations import CUDA_ROW_MUTATIONS

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
GENERAL = ROOT / "tests/general"


def compiled(folder, **environment):
    """Build the kernels in a copy of their sources; the library."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-temp", "objects", "--build-lib", "lib"]
    subprocess.run(command, cwd=folder / "cuda", env=os.environ | environment, check=True)
    return folder / "cuda/lib/libwaves_cuda.so"


@pytest.fixture
def sources(tmp_path):
    for name in ("cpp", "cuda"):
        shutil.copytree(GENERAL / name, tmp_path / name)
    return tmp_path


@pytest.fixture(scope="session")
def schemas(tmp_path_factory):
    return cpp_library.build(GENERAL / "cpp/schema.cpp", tmp_path_factory.mktemp("schemas") / "libwaves_schemas.so")


@pytest.fixture(scope="session")
def run(schemas, toolkit, other_python):
    """Runs pytest on simulated devices with a library of kernels."""

    def on_simulated_devices(kernels, *arguments):
        command = [str(other_python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments]
        libraries = {"WAVES_SCHEMAS": str(schemas), "WAVES_KERNELS": str(kernels), "PYTHONPATH": str(ROOT)}
        environment = os.environ | toolkit.to_run | libraries
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return on_simulated_devices


KIT = [
    *("--pyargs", "opwheel.testing.test_samples", "--library", "tests.general.cuda_library", "--backend", "cuda"),
    *("-k", "not compiled"),  # inductor has no Triton there
]


@pytest.fixture(scope="session")
def simulated(toolkit, tmp_path_factory):
    """The unchanged kernels, built with the simulated toolkit."""
    folder = tmp_path_factory.mktemp("rows")
    for name in ("cpp", "cuda"):
        shutil.copytree(GENERAL / name, folder / name)
    return compiled(folder, **toolkit.to_build)


def test_the_kit(run, simulated):
    result = run(simulated, *KIT)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) > 50


def test_what_the_kit_does_not_ask(run, simulated):
    result = run(simulated, str(GENERAL / "cuda/device_checks.py"))
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


@pytest.mark.parametrize("mutation", CUDA_ROW_MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_simulation_shows_mistakes(run, toolkit, sources, mutation):
    header = sources / "cuda" / mutation.header  # found before the SDK's own
    header.parent.mkdir(parents=True)
    header.write_text(mutation.mutated(Path(opwheel.get_include())))
    result = run(compiled(sources, **toolkit.to_build), *KIT, "-k", "values and float32")
    assert result.returncode == 1, result.stdout[-3000:] + result.stderr[-2000:]
    assert "softmax: values: 1 of 1 failed (float32)" in result.stdout


REGISTERED = """
import torch
from tests.general import cuda_library
for name in cuda_library.KERNELS:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"{cuda_library.library.namespace}::{name}", "CUDA"), name
"""


@pytest.mark.skipif(importlib.util.find_spec("nvidia") is None, reason="nvcc is not in this environment")
def test_what_nvcc_makes(sources, schemas, other_python):
    """It loads under PyTorch's CUDA build; its kernels have shuffles and barriers, and no array in local memory."""
    library = compiled(sources)
    libraries = {"WAVES_SCHEMAS": str(schemas), "WAVES_KERNELS": str(library), "PYTHONPATH": str(ROOT)}
    subprocess.run([str(other_python), "-c", REGISTERED], env=os.environ | libraries, check=True)
    tool = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)), "cu13/bin/cuobjdump")
    code = subprocess.run([tool, "-sass", library], capture_output=True, text=True, check=True).stdout
    assert {"sm_80", "sm_90", "sm_120"} <= set(re.findall(r"sm_\d+", code))
    for kernel in re.split(r"Function : ", code)[1:]:
        assert "SHFL.BFLY" in kernel, kernel[:200]
        assert "BAR.SYNC" in kernel, kernel[:200]
    usage = subprocess.run([tool, "-res-usage", library], capture_output=True, text=True, check=True).stdout
    assert max(map(int, re.findall(r"STACK:(\d+)", usage))) <= 16  # bytes: a number or two, but no array
