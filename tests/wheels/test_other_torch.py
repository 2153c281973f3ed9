"""The same wheel files on another torch: built for one release, used on the next."""

import subprocess
import sys
import venv

import pytest

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

OTHER_TORCH = "2.14.1"


@pytest.fixture(scope="session")
def other_python(wheels, tmp_path_factory):
    """A fresh environment with another torch and these very wheels."""
    folder = tmp_path_factory.mktemp("other") / "env"
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, f"torch=={OTHER_TORCH}", "pytest", "hypothesis", "expecttest", "numpy"], check=True)
    subprocess.run([*install, *map(str, wheels)], check=True)
    return python


def test_conformance(other_python, tmp_path):
    version = [str(other_python), "-c", "import torch; print(torch.__version__)"]
    found = subprocess.run(version, capture_output=True, text=True, check=True).stdout
    assert found.startswith(OTHER_TORCH)
    assert not found.startswith(sys.modules["torch"].__version__)
    command = [str(other_python), "-m", "pytest", "-q", "-W", "ignore", "--pyargs", "muladd.testing"]
    result = subprocess.run(
        [*command, "--muladd-backend", "cpu", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout
