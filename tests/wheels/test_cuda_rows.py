"""Operators by rows on CUDA, made of the SDK's row loops: compiled by nvcc, run by the kit on simulated devices."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import opwheel_tools
import pytest
import torch

from tests.mutants.mutations import CUDA_ROW_MUTATIONS
from tests.portions import first_of
from tests.third_party.environment import IS_WHOLE_KIT

from .row_kernels import GENERAL, build_kernels, build_schemas, copy_sources, kit, libraries, run_pytest

pytestmark = [pytest.mark.wheels, pytest.mark.slow]


@pytest.fixture
def sources(tmp_path):
    return copy_sources("cuda", tmp_path)


@pytest.fixture(scope="session")
def schemas(tmp_path_factory):
    return build_schemas(tmp_path_factory.mktemp("schemas"))


@pytest.fixture(scope="session")
def run(schemas, toolkit, other_python):
    """Runs pytest on simulated devices with a library of kernels."""

    def on_simulated_devices(kernels, *arguments):
        return run_pytest(other_python, toolkit.to_run | libraries("cuda", schemas, kernels), *arguments)

    return on_simulated_devices


@pytest.fixture(scope="session")
def simulated(toolkit, tmp_path_factory):
    """The unchanged kernels, built with the simulated toolkit."""
    return build_kernels("cuda", copy_sources("cuda", tmp_path_factory.mktemp("rows")), **toolkit.to_build)


def test_the_kit(run, simulated):
    # By day one dtype, and what is not about dtypes.
    result = run(simulated, *kit("cuda"), *([] if IS_WHOLE_KIT else ["-k", "not (float16 or bfloat16 or float64)"]))
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) > (50 if IS_WHOLE_KIT else 20)
    for check in ("bounds", "growth") if IS_WHOLE_KIT else ("bounds",):  # which must not count as passed
        assert f"not tried: {check}: it watches the memory of a CPU, not that of cuda" in result.stdout


@pytest.mark.parametrize("checks", ["device_checks.py", "cuda/device_checks.py"])
def test_what_the_kit_does_not_ask(run, simulated, checks):
    result = run(simulated, str(GENERAL / checks))
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


@pytest.mark.parametrize("mutation", first_of(CUDA_ROW_MUTATIONS, 0), ids=lambda mutation: mutation.name)
def test_the_simulation_shows_mistakes(run, toolkit, sources, mutation):
    header = sources / "cuda" / mutation.header  # found before the SDK's own
    header.parent.mkdir(parents=True)
    header.write_text(mutation.mutated(Path(opwheel_tools.get_include())))
    result = run(build_kernels("cuda", sources, **toolkit.to_build), *kit("cuda"), "-k", "values and float32")
    assert result.returncode == 1, result.stdout[-3000:] + result.stderr[-2000:]
    assert "softmax: values: 1 of 1 failed (float32)" in result.stdout


PLAN = """
#include "opwheel/cuda/vectorized_rows.cuh"

namespace rows {

template <int held, bool uses_clusters>
struct Nothing {
  static constexpr int kHeld = held;
  static constexpr bool kUsesClusters = uses_clusters;

  template <class Team>
  __device__ void operator()(const Team&) const {}
};

void run(opwheel::Device device) {
  auto plan = opwheel::cuda::plan_teams<float, Nothing<4, true>>(device, 3, 8, true);
  plan.set_teams(2);
  opwheel::cuda::RUN;
}

}  // namespace rows
"""
ANOTHER_FUNCTOR = "this plan of teams was made for another functor"
RUNS = {
    "run_teams(plan, Nothing<4, true>())": None,
    "run_teams(plan, Nothing<2, true>())": ANOTHER_FUNCTOR,
    "run_teams(plan, Nothing<4, false>())": ANOTHER_FUNCTOR,
    "run_teams<double>(plan, Nothing<4, true>())": "no matching function",
}


@pytest.mark.parametrize("call", RUNS)
def test_a_plan_of_teams_for_another_functor_does_not_compile(toolkit, tmp_path, call):
    """Its threads would take a part of each row."""
    source = tmp_path / "plan.cu"
    source.write_text(PLAN.replace("RUN", call))
    headers = [opwheel_tools.get_include(), Path(torch.__file__).parent / "include"]
    command = [toolkit.folder / "bin/nvcc", "-ccbin=g++", "-std=c++20", "-fsyntax-only", "-DTORCH_STABLE_ONLY"]
    command += ["-DTORCH_TARGET_VERSION=0x020a000000000000", *(f"-isystem={folder}" for folder in headers)]
    result = subprocess.run([*command, "-c", source], capture_output=True, text=True, check=False)
    if RUNS[call] is None:
        assert result.returncode == 0, result.stderr
    else:
        assert RUNS[call] in result.stderr


REGISTERED = """
import torch
from tests.non_elementwise import device_library
for name in device_library.KERNELS:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"{device_library.library.namespace}::{name}", "CUDA"), name
"""


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("nvidia") is None, reason="nvcc is not in this environment")
def test_what_nvcc_makes(sources, schemas, other_python):
    """It loads under PyTorch's CUDA build; its kernels have shuffles and barriers, and no array in local memory."""
    library = build_kernels("cuda", sources)
    environment = os.environ | libraries("cuda", schemas, library)
    subprocess.run([str(other_python), "-c", REGISTERED], env=environment, check=True)
    tool = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)), "cu13/bin/cuobjdump")
    code = subprocess.run([tool, "-sass", library], capture_output=True, text=True, check=True).stdout
    assert {"sm_80", "sm_90", "sm_120"} <= set(re.findall(r"sm_\d+", code))
    for kernel in re.split(r"Function : ", code)[1:]:
        assert "SHFL.BFLY" in kernel, kernel[:200]
        assert "BAR.SYNC" in kernel, kernel[:200]
    usage = subprocess.run([tool, "-res-usage", library], capture_output=True, text=True, check=True).stdout
    assert max(map(int, re.findall(r"STACK:(\d+)", usage))) <= 16  # bytes: a number or two, but no array
