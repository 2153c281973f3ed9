"""The wheels of this repository, built once."""

import fcntl
import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from opwheel.registry import read_file

from . import other_torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def projects():
    """The folders that build a wheel here: framework, tools, core, backends of plugins.toml that are installed."""
    known = read_file(ROOT / "plugins.toml")["backends"].values()
    here = [backend for backend in known if importlib.util.find_spec(backend.distribution.replace("-", "_"))]
    assert here
    return [ROOT / "framework", ROOT / "tools", ROOT / "core", *(ROOT / backend.directory for backend in here)]


@pytest.fixture(scope="session")
def wheels(projects, tmp_path_factory):
    """Paths of the built wheels."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", str(folder)]
    # Two parts of the test suite may do so at the same time, and the build folders are in the source tree.
    with (ROOT / "pyproject.toml").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # As for most people: compiled modules are written wherever something is imported.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run([*command, *map(str, projects)], env=environment, check=True)
    return sorted(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def torch_packages(tmp_path_factory):
    """The folder with another torch."""
    if other_torch.KEPT.is_dir():
        return other_torch.KEPT
    folder = tmp_path_factory.mktemp("other_torch")
    other_torch.install(folder)
    return folder


@pytest.fixture(scope="session")
def other_python(wheels, torch_packages, tmp_path_factory):
    """A fresh environment with another torch and these very wheels."""
    folder = tmp_path_factory.mktemp("other") / "env"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (packages / "other_torch.pth").write_text(f"{torch_packages}\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *map(str, wheels)], check=True)
    return python


@pytest.fixture(scope="session")
def toolkit(torch_packages, tmp_path_factory):
    """A simulated CUDA toolkit, for the PyTorch of that environment."""
    from tests.simulated_cuda import Toolkit

    return Toolkit(tmp_path_factory.mktemp("simulated") / "cuda", torch_packages / "torch")
