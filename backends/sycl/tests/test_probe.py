"""What the backend says where it cannot work, and that `import muladd` works there all the same."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SITE_PACKAGES = Path(sysconfig.get_path("platlib"))
REPORT = """
import torch, muladd
status = muladd.backends()["sycl"]
print(status.state, status.code, status.reason, "fix:", status.fix, sep="|")
assert muladd.library.operators
try:
    muladd.require("sycl")
except RuntimeError as error:
    print("require:", error)
"""
XPU_TORCH = "import torch; torch.version.xpu = '20260000'\n"  # as in PyTorch's XPU builds


def run(code, *options, path=ROOT / "tests"):
    environment = os.environ | {"PYTHONPATH": str(path)}
    result = subprocess.run(
        [sys.executable, *options, "-c", code + REPORT],
        capture_output=True, text=True, check=False, timeout=120, env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def is_refused(answer, *words):
    state, code, *_ = answer.split("|")
    assert (state, code) == ("unsupported", "OPWHEEL-E040")
    assert "fix:" in answer
    for word in words:
        assert word in answer.splitlines()[0]
    assert "require: " in answer
    assert words[0] in answer.splitlines()[1]


@pytest.fixture
def without_the_runtime(tmp_path):
    """The installed packages, but for dpcpp-cpp-rt."""
    for entry in SITE_PACKAGES.iterdir():
        if not entry.name.startswith("dpcpp_cpp_rt"):
            (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


def test_all_there():
    assert run("import simulated_xpu\n").startswith("loaded||")


def test_a_torch_for_the_cpu_alone():
    import torch

    is_refused(run(""), torch.__version__, "built without", "get-started")


def test_no_device():
    is_refused(run("import simulated_xpu, torch; torch.xpu.device_count = lambda: 0\n"), "no Intel GPU", "driver")


def test_another_major_version_of_the_runtime(tmp_path):
    library = tmp_path / "libsycl.so.8"
    subprocess.run(
        ["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(library), f"-Wl,-soname,{library.name}"], check=True
    )
    answer = run(XPU_TORCH + f"import ctypes; ctypes.CDLL({str(library)!r})\n")
    is_refused(answer, str(library), "libsycl.so.9")


def test_the_runtime_is_not_loaded():
    is_refused(run(XPU_TORCH), "libsycl.so.9 is missing", "is installed, but", "pip install")


def test_the_runtime_is_not_installed(without_the_runtime):
    answer = run(XPU_TORCH, "-S", path=without_the_runtime)
    is_refused(answer, "libsycl.so.9 is missing", "dpcpp-cpp-rt is not installed", "pip install 'dpcpp-cpp-rt>=2026")


def test_the_runtime_is_not_installed_beside_a_torch_for_the_cpu(without_the_runtime):
    is_refused(run("", "-S", path=without_the_runtime), "built without")


def test_the_major_version_is_that_of_the_library():
    import muladd_sycl

    library = Path(muladd_sycl.__file__).parent / "libmuladd_sycl.so"
    dynamic = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    assert f"[libsycl.so.{muladd_sycl.RUNTIME_MAJOR}]" in dynamic
