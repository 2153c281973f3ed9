"""The wheels of `make wheels TORCHES=all` on a CPython without its global lock, which is built here first.

Threads of it run at the same time, also in Python: what the tests of threads provoke elsewhere happens by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from release.free_threaded import FreeThreaded

from .conftest import ROOT, SITE, Environment

pytestmark = [pytest.mark.slow, pytest.mark.wheels]

LIBRARIES = ("muladd", "transformer_ops")
LEFT_OUT = ("muladd_cuda-", "muladd_sycl-", "muladd_executorch-", "transformer_ops_cuda-", "transformer_ops_triton-")

# A module in C that has not said that it needs no lock switches it on when it is imported, with a warning.
IMPORTS = """
import sys
assert not sys._is_gil_enabled()
import torch, numpy
before = sys._is_gil_enabled()
import muladd, transformer_ops
x = torch.randn(4, 8, requires_grad=True)
muladd.muladd(x, x, 0.5).sum().backward()
transformer_ops.rms_norm(x, torch.ones(8), 1e-6).sum().backward()
print(before, sys._is_gil_enabled())
"""


@pytest.fixture(scope="session")
def free_threaded() -> Environment:
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    assert wheels, "there is no wheel in dist/: make wheels TORCHES=all"
    made = FreeThreaded(Path(os.environ.get("TEST_FREE_THREADED", ROOT / ".venv-3.13t")))
    made.make()
    taken = [str(wheel) for wheel in wheels if not wheel.name.startswith(("muladd-", *LEFT_OUT))]
    made.install(taken, "--force-reinstall", "--no-deps")
    made.install(["pluggy>=1.5", "packaging>=23", "typer>=0.15", "jinja2>=3"])
    return Environment(made.python)


def run_tests(environment: Environment, *arguments: object, **variables: str) -> None:
    """Run tests in the checkout, or in what is installed, by the environment's Python.

    PYTHON_GIL=0: the lock stays off where tests import torch._dynamo, which imports Triton's module in C.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MULADD_", "PYTHON"))}
    inherited["PYTHON_GIL"] = "0"
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=inherited | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_imports_leave_the_lock_off(free_threaded: Environment) -> None:
    done = free_threaded.run("-W", "error::RuntimeWarning", "-c", IMPORTS)
    assert done.stdout == "False False\n", done.stderr


@pytest.mark.parametrize("library", LIBRARIES)
def test_doctor(library: str, free_threaded: Environment) -> None:
    report = json.loads(free_threaded.run("-m", library, "doctor", "--json").stdout)
    assert report["ok"]
    assert report["findings"] == []
    assert report["backends"]["cpu"]["state"] == "loaded"
    assert report["autograd"]["kind"] == "native"
    assert report["calls"]["kind"] == "python"
    assert "built without" in report["calls"]["reason"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_conformance(library: str, free_threaded: Environment) -> None:
    kit = ["-W", "ignore", "--pyargs", "opwheel_tools.testing", "--library", library, "--backend", "cpu"]
    run_tests(free_threaded, *kit, **{f"{library.upper()}_REQUIRE": "cpu"})


def test_calls_of_several_threads(free_threaded: Environment) -> None:
    done = free_threaded.run(Path(__file__).parent / "calls_in_threads.py")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert not report["has_lock"]
    assert report["calls"] >= 500_000
    assert report["threads"] == 8
    assert report["wrong"] == []
    assert report["growth"]["bytes"] < 100_000  # of the C library, in which PyTorch's tensors are
    assert report["growth"]["objects"] < 10_000  # of Python


def test_what_threads_make_at_a_time(free_threaded: Environment) -> None:
    run_tests(free_threaded, "tests/unit/test_threads.py", "tests/autograd/test_stress.py")


def test_faults(free_threaded: Environment) -> None:
    """Every way in which a plugin can fail; they are compiled with this environment's PyTorch: the SDK needs 2.13's."""
    run_tests(free_threaded, "tests/faults", OPWHEEL_TORCH=str(SITE))
