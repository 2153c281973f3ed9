"""Backends for other devices of a library whose operators are element-wise and by rows: as new-backend writes them, and
with a kernel for the rows. On CUDA: tests/wheels/test_simulated_cuda.py."""

from pathlib import Path

import pytest

from tests.non_elementwise import mixed_library

from .environment import HAS_SYCL

pytestmark = [pytest.mark.wheels, pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return mixed_library.new_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def backend(environment, library, tmp_path):
    """A project in an environment that has the library's core."""
    environment.install(library / "core")

    def write(name, *options):
        project = tmp_path / f"waves-{name}"
        command = ("new-backend", name, "--library", mixed_library.NAME, "--output", project, *options)
        done = environment.run("-m", "opwheel", *command)
        assert done.returncode == 0, done.stderr
        environment.install(project)
        return project

    return write


def test_a_device_outside_of_pytorch(backend, environment, library, example):
    """PrivateUse1: examples/plugins/toy."""
    environment.install(example("toy"))
    project = backend("toy", "--device-type", "toy")
    status = environment.status("toy", mixed_library.NAME)
    assert (status["state"], status["dispatch_key"], status["by_reference"]) == ("loaded", "PrivateUse1", ["softmax"])
    environment.passes_the_kit("toy", mixed_library.NAME, mixed_library.KIT)
    mixed_library.put_kernel(project, library, "cpp")
    environment.install(project)
    assert environment.status("toy", mixed_library.NAME)["by_reference"] == []
    environment.passes_the_kit("toy", mixed_library.NAME, mixed_library.KIT)


@pytest.mark.skipif(not HAS_SYCL, reason="the SYCL runtime is not installed: make test-sycl runs this")
def test_intel_gpus(backend, environment, library):
    """On simulated devices."""
    project = backend("acme", "--language", "sycl")
    variables = {"PYTHONPATH": str(Path(__file__).parents[1])}
    simulated = ("-p", "simulated_xpu", *mixed_library.KIT)
    environment.passes_the_kit("acme", mixed_library.NAME, simulated, **variables)
    mixed_library.put_kernel(project, library, "sycl")
    environment.install(project)
    environment.passes_the_kit("acme", mixed_library.NAME, simulated, **variables)
