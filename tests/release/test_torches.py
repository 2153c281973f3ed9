"""The same wheel files on every minor release of PyTorch since the oldest that is supported, on several Pythons.

The wheels are those of `make wheels TORCHES=all`: the kit runs with native Autograd and with that in Python.

Each environment takes gigabytes, most of them CUDA's libraries: `make test-torch` runs this, not `make test-release`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Environment, check_passed, find_python

pytestmark = [pytest.mark.slow, pytest.mark.wheels]

# By release the Python. `make test` runs on 2.13.0, and a part of it on 2.14.1.
RELEASES = {"2.10.0": "3.10", "2.11.0": "3.12", "2.12.1": "3.13", "2.13.0": "3.11", "2.15.0": "3.14"}

CALLS = """
import muladd, torch
from opwheel.dispatch import calls
op = torch.ops.muladd.muladd.default
print(op._op.__name__, muladd.muladd(torch.ones(1), torch.ones(1), 2.0).item())
"""


@pytest.fixture
def installed(torch_release: str, built: dict[str, Path], tmp_path: Path) -> Iterator[Environment]:
    """An environment with that PyTorch and the wheels, gone with the test."""
    folder = tmp_path / "env"
    subprocess.run([find_python(RELEASES[torch_release]), "-m", "venv", str(folder)], check=True)
    environment = Environment(folder / "bin/python")
    for requirements in (
        [f"torch=={torch_release}", "numpy"],
        [str(built["opwheel"]), f"{built['opwheel_tools']}[testing]", str(built["core"]), str(built["cpu"])],
    ):
        answer = environment.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
        assert answer.returncode == 0, answer.stderr
    yield environment
    shutil.rmtree(folder)


@pytest.mark.parametrize("torch_release", RELEASES)
def test_conformance(torch_release: str, installed: Environment) -> None:
    version = installed.run("-c", "import torch; print(torch.__version__)").stdout
    assert version.startswith(torch_release)
    kit = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--pyargs", "opwheel_tools.testing"]
    kit += ["--library", "muladd", "--backend", "cpu"]
    for autograd in ("native", "python"):
        answer = installed.run("-c", CALLS, OPWHEEL_AUTOGRAD=autograd)
        called = "muladd::muladd" if autograd == "native" else ""  # PyTorch's function has no name
        assert answer.stdout == f"{called} 3.0\n", answer.stderr
        result = installed.run(*kit, MULADD_REQUIRE="cpu", OPWHEEL_AUTOGRAD=autograd)
        print(f"Autograd: {autograd}")
        check_passed(result)
