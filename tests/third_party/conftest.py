"""Environments of their own for projects of third parties."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from .environment import Environment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "environment")


@pytest.fixture
def example(tmp_path):
    """A copy of an example's project: building it leaves files there."""

    def copy(name):
        ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        return Path(shutil.copytree(ROOT / "examples/plugins" / name, tmp_path / name, ignore=ignored))

    return copy


@pytest.fixture
def muladd(tmp_path):
    """The command of this environment, as a user types it in an empty folder."""
    import subprocess

    def run(*arguments):
        command = [sys.executable, "-m", "muladd", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ)

    return run
