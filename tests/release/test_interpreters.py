"""The wheels of `make wheels TORCHES=all` on a CPython that is built here first; ``TEST_INTERPRETER`` says which.

Without its global lock threads run at the same time, also in Python: what the tests of threads provoke elsewhere
happens by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from release.interpreters import Interpreter

from .conftest import ROOT, SITE, Environment, check_lock, check_passed

pytestmark = [pytest.mark.slow, pytest.mark.wheels]

LIBRARIES = ("muladd", "transformer_ops")
LEFT_OUT = ("muladd_cuda-", "muladd_sycl-", "muladd_executorch-", "transformer_ops_cuda-", "transformer_ops_triton-")
NAME = os.environ.get("TEST_INTERPRETER", "3.14t")
MADE = Interpreter(NAME)
without_lock = pytest.mark.skipif(not MADE.is_free_threaded, reason="this CPython has its global lock")

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
def interpreter() -> Environment:
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    assert wheels, "there is no wheel in dist/: make wheels TORCHES=all"
    MADE.make_with_torch()
    taken = [str(wheel) for wheel in wheels if not wheel.name.startswith(("muladd-", *LEFT_OUT))]
    MADE.install(taken, "--force-reinstall", "--no-deps")
    MADE.install(["pluggy>=1.5", "packaging>=23", "typer>=0.15", "jinja2>=3"])
    return Environment(MADE.python)


def run_tests(environment: Environment, *arguments: object, **variables: str) -> None:
    """Run tests in the checkout, or in what is installed, by the environment's Python.

    PYTHON_GIL=0: the lock stays off where tests import torch._dynamo, which imports Triton's module in C.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MULADD_", "PYTHON"))}
    if MADE.is_free_threaded:
        inherited["PYTHON_GIL"] = "0"
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)]
    check_passed(
        subprocess.run(command, cwd=ROOT, env=inherited | variables, capture_output=True, text=True, check=False)
    )


@without_lock
def test_imports_leave_the_lock_off(interpreter: Environment) -> None:
    done = interpreter.run("-W", "error::RuntimeWarning", "-c", IMPORTS)
    assert done.stdout == "False False\n", done.stderr


@pytest.mark.parametrize("library", LIBRARIES)
def test_doctor(library: str, interpreter: Environment) -> None:
    report = json.loads(interpreter.run("-m", library, "doctor", "--json").stdout)
    assert report["ok"]
    assert report["findings"] == []
    assert report["backends"]["cpu"]["state"] == "loaded"
    assert report["autograd"]["kind"] == "native"
    if MADE.is_free_threaded:
        assert report["calls"]["kind"] == "python"
        assert "built without" in report["calls"]["reason"]
    else:
        assert report["calls"]["kind"] == "native"


def test_lock(interpreter: Environment, tmp_path: Path) -> None:
    check_lock(interpreter, tmp_path / "muladd.lock")


def test_training(interpreter: Environment) -> None:
    """The example fails if muladd's parameters are not those of plain PyTorch."""
    done = interpreter.run(ROOT / "examples/digits.py", "--epochs", 2, "--no-compile")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test accuracy" in done.stdout


@pytest.mark.parametrize("library", LIBRARIES)
def test_conformance(library: str, interpreter: Environment) -> None:
    kit = ["-W", "ignore", "--pyargs", "opwheel_tools.testing", "--library", library, "--backend", "cpu"]
    run_tests(interpreter, *kit, **{f"{library.upper()}_REQUIRE": "cpu"})


def test_calls_of_several_threads(interpreter: Environment) -> None:
    done = interpreter.run(Path(__file__).parent / "calls_in_threads.py")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["has_lock"] != MADE.is_free_threaded
    assert report["calls"] >= 500_000
    assert report["threads"] == 8
    assert report["wrong"] == []
    assert report["growth"]["bytes"] < 100_000  # of the C library, in which PyTorch's tensors are
    assert report["growth"]["objects"] < 10_000  # of Python


def test_what_threads_make_at_a_time(interpreter: Environment) -> None:
    run_tests(interpreter, "tests/unit/test_threads.py", "tests/autograd/test_stress.py")


def test_faults(interpreter: Environment) -> None:
    """Every way in which a plugin can fail. The SDK needs the headers of PyTorch 2.13 or later."""
    is_old = Version(MADE.torch.partition("==")[2]) < Version("2.13")
    run_tests(interpreter, "tests/faults", **({"OPWHEEL_TORCH": str(SITE)} if is_old else {}))
