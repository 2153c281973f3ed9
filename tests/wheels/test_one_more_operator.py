"""One more operator on every backend is a row, a functor and a declaration: nothing else names operators."""

import importlib.util
import os
import random
import re
import sys
from pathlib import Path

import pytest

from tests.matrix import outcomes
from tests.third_party.environment import IS_WHOLE_KIT
from tests.wheels.folders import install, run
from tests.wheels.one_more_operator import ROOT, SUB, copy_with, draw

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

NIGHTLY = pytest.mark.skipif(not IS_WHOLE_KIT, reason="a kit on a simulated device: make nightly")
SEED = int(os.environ.get("TEST_SEED", random.randrange(1000)))


@pytest.fixture(scope="module")
def operators():
    print(f"TEST_SEED={SEED}")  # draws the same operator again
    return [SUB, draw(SEED)]


@pytest.fixture(scope="module")
def copy(operators, tmp_path_factory):
    return copy_with(operators, tmp_path_factory.mktemp("copy"))


def check(python, site, operators, backend, *options, **variables):
    """Run the kit for the new operators, each with more than a few tests."""
    names = ",".join(operator.name for operator in operators)
    kit = ["--pyargs", "opwheel_tools.testing", "--library", "muladd", "--backend", backend, "--operators", names]
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    output = run(
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *kit, *options),
        **{"PYTHONPATH": path, "MULADD_BACKENDS": backend, "MULADD_REQUIRE": backend, **variables},
    )
    assert int(re.search(r"(\d+) passed", output)[1]) > 100
    found = outcomes(output)
    assert found.keys() >= {operator.name for operator in operators}
    assert {outcome for each in found.values() for outcome in each} == {"ok", "--"}


@pytest.mark.skipif(importlib.util.find_spec("muladd_cpu") is None, reason="muladd-cpu is not in this environment")
def test_on_the_cpu(copy, operators, tmp_path):
    install(tmp_path, copy / "core", copy / "backends/cpu", CXXFLAGS="-O1")  # it has to be right, not fast
    check(sys.executable, tmp_path, operators, "cpu", *([] if IS_WHOLE_KIT else ["-m", "not compiles"]))


@NIGHTLY
@pytest.mark.skipif(importlib.util.find_spec("muladd_cuda") is None, reason="muladd-cuda is not in this environment")
def test_on_simulated_cuda(copy, operators, tmp_path, request):
    toolkit, python = request.getfixturevalue("toolkit"), request.getfixturevalue("other_python")
    install(tmp_path, copy / "core", copy / "backends/cuda", **toolkit.to_build)
    # Without a GPU there is nothing that Triton could compile for.
    check(python, tmp_path, operators, "cuda", "-m", "not compiles", **toolkit.to_run)


@NIGHTLY
@pytest.mark.skipif(importlib.util.find_spec("muladd_sycl") is None, reason="muladd-sycl is not in this environment")
def test_on_simulated_xpu(copy, operators, tmp_path):
    install(tmp_path, copy / "core", copy / "backends/sycl")
    check(sys.executable, tmp_path, operators, "sycl", "-p", "simulated_xpu", PYTHONPATH=f"{tmp_path}:{ROOT / 'tests'}")


def test_the_copy_differs_in_three_files(copy):
    changed = [
        str(path.relative_to(copy))
        for path in copy.rglob("*")
        if path.is_file() and "build" not in path.parts and path.suffix not in (".so", ".o")
        and (ROOT / path.relative_to(copy)).is_file()
        and path.read_bytes() != (ROOT / path.relative_to(copy)).read_bytes()
    ]  # fmt: skip
    assert sorted(Path(path).name for path in changed) == ["__init__.py", "functors.h", "operators.h"]
