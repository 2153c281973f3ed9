"""Operators by rows in SYCL, made of the SDK's row loops: run by the kit on simulated devices, which have sub-groups,
barriers and memory on the chip, because Intel's OpenCL runtime runs them on the CPU."""

import os
import re
import sys
from pathlib import Path

import opwheel_tools
import pytest

from tests.mutants.mutations import SYCL_ROW_MUTATIONS
from tests.portions import first_of
from tests.third_party.environment import HAS_SYCL

from .row_kernels import GENERAL, ROOT, build_kernels, build_schemas, copy_sources, kit, libraries, run_pytest

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_SYCL, reason="the SYCL runtime is not installed: make test-sycl runs this"),
]


@pytest.fixture(scope="session")
def schemas(tmp_path_factory):
    return build_schemas(tmp_path_factory.mktemp("schemas"))


@pytest.fixture(scope="session")
def run(schemas):
    def on_simulated_devices(kernels, *arguments):
        environment = libraries("xpu", schemas, kernels)
        environment["PYTHONPATH"] = f"{ROOT / 'tests'}{os.pathsep}{environment['PYTHONPATH']}"
        return run_pytest(sys.executable, environment, "-p", "simulated_xpu", *arguments)

    return on_simulated_devices


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    return build_kernels("xpu", copy_sources("xpu", tmp_path_factory.mktemp("rows")))


def test_the_kit(run, kernels):
    result = run(kernels, *kit("xpu"))
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) > 50
    for check in ("bounds", "growth"):  # which must not count as passed
        assert f"not tried: {check}: it watches the memory of a CPU, not that of xpu" in result.stdout


@pytest.mark.parametrize("checks", ["device_checks.py", "xpu/device_checks.py"])
def test_what_the_kit_does_not_ask(run, kernels, checks):
    result = run(kernels, str(GENERAL / checks))
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


@pytest.mark.parametrize("mutation", first_of(SYCL_ROW_MUTATIONS, 0), ids=lambda mutation: mutation.name)
def test_the_simulation_shows_mistakes(run, tmp_path, mutation):
    sources = copy_sources("xpu", tmp_path)
    header = sources / "cpp" / mutation.header  # found before the SDK's own
    header.parent.mkdir(parents=True)
    header.write_text(mutation.mutated(Path(opwheel_tools.get_include())))
    setup = sources / "xpu/setup.py"
    setup.write_text(re.sub(r"^DTYPES = .*", 'DTYPES = ("float32",)', setup.read_text(), flags=re.MULTILINE))
    result = run(build_kernels("xpu", sources), *kit("xpu"), "-k", "values and float32")
    assert result.returncode == 1, result.stdout[-3000:] + result.stderr[-2000:]
    assert "softmax: values: 1 of 1 failed (float32)" in result.stdout
