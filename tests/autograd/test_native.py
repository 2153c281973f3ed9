"""Which kernels are at the Autograd key, and that both kinds give the same."""

import os
import subprocess
import sys

import muladd
import pytest
import torch
from opwheel.dispatch import native

IS_NATIVE = not native.why_not()


def registrations(operator):
    return torch._C._dispatch_dump(operator)


@pytest.mark.skipif(not IS_NATIVE, reason=native.why_not())
@pytest.mark.parametrize("name", sorted(muladd.library.overloads))
def test_every_operator_of_the_library_is_native(name):
    lines = [line for line in registrations(f"muladd::{name}").splitlines() if line.startswith("Autograd[alias]")]
    assert len(lines) == 1
    assert "libopwheel_autograd" in lines[0]


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.mark.parametrize("way", ["python", "native"])
def test_the_environment_forces_one(way):
    code = "import muladd; from opwheel.dispatch import native; print(native.why_not())"
    done = run(code, OPWHEEL_AUTOGRAD=way)
    if way == "native" and not IS_NATIVE and "OPWHEEL_AUTOGRAD" not in os.environ:
        assert "OPWHEEL_AUTOGRAD=native, but" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == ("OPWHEEL_AUTOGRAD=python" if way == "python" else "")


def test_the_environment_says_something_else():
    done = run("import muladd", OPWHEEL_AUTOGRAD="cpp")
    assert "OPWHEEL_AUTOGRAD is 'cpp'; it is 'native', 'python' or not set" in done.stderr
