"""The same wheel files on another torch: built for one release, used on the next."""

import subprocess
from importlib import metadata
from pathlib import Path

import muladd
import pytest

from tests.third_party.environment import IS_WHOLE_KIT
from tests.torchrun import in_processes

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("tests", ["unit/test_torch_private.py", "unit/test_another_library.py"])
def test_private_names_and_machinery(other_python, tmp_path, tests):
    command = [str(other_python), "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    result = subprocess.run([*command, str(ROOT / "tests" / tests)], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:]


def test_distributed(other_python):
    checks = ROOT / "tests/interop/distributed_checks.py"
    assert "all placements right" in in_processes(2, str(checks), "2", python=str(other_python))


CUDA_WITHOUT_A_DEVICE = """
import os, torch, muladd, muladd_cuda
from opwheel.registry.dispatcher import has_kernel
assert torch.version.cuda, torch.__version__
status = muladd.backends()["cuda"]
print(status.state, "|", status.reason)
child = os.fork()
if child == 0:
    os._exit(torch.cuda._is_in_bad_fork())
assert os.waitpid(child, 0)[1] == 0, "after the import a forked process cannot use CUDA"
assert str(status.state) == ("loaded" if torch.cuda.is_available() else "unsupported")
torch.ops.load_library(muladd_cuda.LIBRARY)
missing = [name for name in muladd.library.operators if not has_kernel("muladd", name, "CUDA")]
print("missing of", len(muladd.library.operators), "operators:", missing)
assert not missing
"""


def test_the_cuda_library_loads_without_a_device(other_python):
    """PyTorch's CUDA build: the registry says why it stays out; opened by hand, it registers every operator."""
    result = subprocess.run([str(other_python), "-c", CUDA_WITHOUT_A_DEVICE], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "sees no CUDA device" in result.stdout or "loaded" in result.stdout
    assert f"missing of {len(muladd.library.operators)} operators: []" in result.stdout


def test_conformance(other_python, tmp_path):
    version = [str(other_python), "-c", "import torch; print(torch.__version__)"]
    found = subprocess.run(version, capture_output=True, text=True, check=True).stdout
    assert not found.startswith(metadata.version("torch"))
    command = [str(other_python), "-m", "pytest", "-q", "-W", "ignore", "--pyargs", "opwheel_tools.testing"]
    # One operator with float32, with all that follows from its declaration; in make nightly all, and torch.compile.
    some = ["-m", "not compiles", "--operators", "muladd", "-k", "not float64 and not float16"]
    chosen = [] if IS_WHOLE_KIT else some
    result = subprocess.run(
        [*command, "--library", "muladd", "--backend", "cpu", "-p", "no:cacheprovider", *chosen],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout
