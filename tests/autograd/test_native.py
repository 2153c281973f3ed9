"""Which kernels are at the Autograd key, and that both kinds give the same."""

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import muladd
import pytest
import torch
from opwheel._torch.native import library_file
from opwheel.dispatch import native_autograd

from tests.portions import first_of

IS_NATIVE = not native_autograd.why_not()


def registrations(operator):
    return torch._C._dispatch_dump(operator)


@pytest.mark.skipif(not IS_NATIVE, reason=native_autograd.why_not())
@pytest.mark.parametrize("name", sorted(muladd.library.overloads))
def test_every_operator_of_the_library_is_native(name):
    lines = [line for line in registrations(f"muladd::{name}").splitlines() if line.startswith("Autograd[alias]")]
    assert len(lines) == 1
    assert "libopwheel_autograd" in lines[0]


@pytest.mark.skipif(not IS_NATIVE, reason=native_autograd.why_not())
def test_functorch_s_state_is_not_created():
    """PyTorch would copy it in every backward pass of the thread."""
    symbols = ctypes.CDLL("libtorch_cpu.so")
    state = symbols._ZN2at9functorch20functorchTLSAccessorEv
    state.restype = ctypes.POINTER(ctypes.c_void_p)
    found = []

    def train():
        muladd.mul(torch.ones(2, requires_grad=True), torch.ones(2)).sum().backward()
        found.append(state()[0])
        torch.func.vmap(torch.sin)(torch.ones(2))
        found.append(state()[0])

    thread = threading.Thread(target=train)  # the state is the thread's own
    thread.start()
    thread.join()
    assert found[0] is None
    assert found[1] is not None


def test_the_schema_library_has_the_derivatives():
    """The build put them there, for programs without Python."""
    schemas = ctypes.CDLL(str(muladd.library.schema_library))
    schemas.muladd_derivatives.restype = ctypes.c_char_p
    assert schemas.muladd_derivatives().decode() == muladd.library.derivatives()
    fma = "operator muladd::fma\ngradient result\nargument b\ncall muladd::mul 2\nformula a 0\n"
    assert fma in muladd.library.derivatives()


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.mark.parametrize("way", ["python", "native"])
def test_the_environment_forces_one(way):
    code = "import muladd; from opwheel.dispatch import native_autograd; print(native_autograd.why_not())"
    done = run(code, OPWHEEL_AUTOGRAD=way)
    if way == "native" and not IS_NATIVE and "OPWHEEL_AUTOGRAD" not in os.environ:
        assert "OPWHEEL_AUTOGRAD=native, but" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == ("OPWHEEL_AUTOGRAD=python" if way == "python" else "")


def test_the_environment_says_something_else():
    done = run("import muladd", OPWHEEL_AUTOGRAD="cpp")
    assert "OPWHEEL_AUTOGRAD is 'cpp'; it is 'native', 'python' or not set" in done.stderr


def passes_the_other_way(*tests):
    """Whether tests pass on the other kernels than those that all others run on, where there are others."""
    way = "python" if IS_NATIVE else "native"
    if way == "native" and isinstance(library_file("autograd"), str):
        pytest.skip(native_autograd.why_not())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *tests],
        capture_output=True,
        text=True,
        env={**os.environ, "OPWHEEL_AUTOGRAD": way},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("part", first_of(["gradients", "transforms"]))
def test_derivatives_are_right_in_python_as_well(part):
    kit = [
        "--pyargs",
        f"opwheel_tools.testing.test_{part}",
        "--library",
        "muladd",
        "--backend",
        "cpu",
        "-m",
        "not compiles",
    ]
    passes_the_other_way(*kit)


@pytest.mark.slow
def test_several_results_in_python_as_well():
    passes_the_other_way(str(Path(__file__).parent / "test_several_results.py"))
