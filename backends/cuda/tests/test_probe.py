"""Whether this machine can use the wheel, for every machine that the backend may meet."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import muladd
import muladd_cuda
import pytest
import torch
from opwheel.cuda.driver import Driver
from opwheel.cuda.support import Build, Machine, detect, judge
from opwheel.registry import BackendUnavailableError, State

BUILD = Build.read(muladd_cuda.LIBRARY.with_suffix(".json"))
H200 = Machine("2.11.0+cu130", "13.0", device_count=1, driver=(13, 0), capabilities=((9, 0),))


def test_a_supported_device():
    assert judge(H200, BUILD, "muladd-cuda").ok


@pytest.mark.parametrize(
    ("machine", "reason", "fix"),
    [
        (Machine("2.13.0+rocm7.0", None, "7.0.51831"), ["ROCm 7.0.51831", "CUDA 13.0"], "from source"),
        (H200._replace(device_count=0, capabilities=()), ["no CUDA device", "2.11.0+cu130"], "CUDA_VISIBLE_DEVICES"),
        (H200._replace(device_count=0), ["no CUDA device"], "nvidia-smi"),
        (H200._replace(driver=(12, 8)), ["12.8", "13.0"], "update the NVIDIA driver"),
        (H200._replace(driver=(12, 8), device_count=0), ["12.8", "13.0"], "CUDA 13.0 needs 580 or later"),
        (H200._replace(capabilities=((7, 0), (6, 1))), ["6.1, 7.0", "7.5, 8.0, 8.6"], "TORCH_CUDA_ARCH_LIST"),
    ],
)
def test_what_is_missing_and_what_to_do(machine, reason, fix):
    answer = judge(machine, BUILD, "muladd-cuda")
    assert not answer.ok
    assert all(words in answer.reason for words in reason), answer.reason
    assert fix in answer.fix


def test_a_torch_without_cuda(monkeypatch):
    for platform in ("cuda", "hip"):
        monkeypatch.setattr(torch.version, platform, None)
    answer = muladd_cuda.probe()
    assert not answer.ok
    assert answer.reason == f"torch {torch.__version__} is built without CUDA"
    assert "torch with CUDA" in answer.fix


def test_one_supported_device_is_enough():
    assert judge(H200._replace(device_count=2, capabilities=((6, 1), (9, 0))), BUILD, "muladd-cuda").ok


FOR_12 = Build((12, 4), ((8, 0), (9, 0)), ((9, 0),))


@pytest.mark.parametrize(
    ("machine", "fix"),
    [
        (Machine("2.10.0+cu128", "12.8", device_count=1, driver=(12, 8), capabilities=((9, 0),)), None),
        (Machine("2.10.0+cu128", "12.8", device_count=1, driver=(12, 8), capabilities=((12, 0),)), None),
        (Machine("2.10.0+cu126", "12.6", device_count=1, driver=(12, 2), capabilities=((8, 6),)), None),
        (H200, None),
        (H200._replace(driver=(11, 8)), "CUDA 12.4 needs 525 or later"),
        (
            H200._replace(driver=(12, 2), capabilities=((12, 0),)),
            "TORCH_CUDA_ARCH_LIST",
        ),  # which compiles no PTX of 12.4
    ],
)
def test_a_wheel_built_for_cuda_12(machine, fix):
    """Drivers and PyTorchs of CUDA 12 and 13 will do."""
    answer = judge(machine, FOR_12, "muladd-cuda")
    assert answer.ok is (fix is None)
    assert fix is None or fix in answer.fix


def test_a_release_of_cuda_that_is_not_known_yet():
    answer = judge(H200, BUILD._replace(cuda=(15, 1)), "muladd-cuda")
    assert "one for CUDA 15.1 or later" in answer.fix


def test_unknown_driver_and_capabilities_are_no_reason_to_refuse():
    assert judge(H200._replace(driver=None, capabilities=()), BUILD, "muladd-cuda").ok


@pytest.mark.parametrize(
    ("capability", "covered"),
    [((7, 0), False), ((7, 5), True), ((8, 7), True), ((9, 0), True), ((10, 1), True), ((11, 0), True),
     ((12, 1), True), ((13, 0), True)],
)  # fmt: skip
def test_covered_devices(capability, covered):
    assert BUILD.covers(capability) is covered


def test_machine_code_alone_does_not_reach_other_majors():
    build = Build((13, 0), ((8, 6),), ())
    assert [build.covers(capability) for capability in ((8, 0), (8, 6), (8, 9), (9, 0))] == [False, True, True, False]


FAKE_NVML = """
int nvmlInit_v2(void) { return STATUS; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 12080; return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = (void*)(index + 1L); return index == 1; }
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = 8; *minor = (int)(long)device; return 0;
}
"""


def test_a_driver_of_the_same_major_release_runs_machine_code_and_compiles_no_later_ptx():
    build = BUILD._replace(cuda=(13, 2))
    assert judge(H200, build, "muladd-cuda").ok
    later = judge(H200._replace(capabilities=((13, 0),)), build, "muladd-cuda")
    assert not later.ok
    assert "13.0" in later.reason
    assert judge(H200._replace(capabilities=((13, 0),), driver=(13, 2)), build, "muladd-cuda").ok


def test_code_for_exactly_one_device(tmp_path):
    file = tmp_path / "build.json"
    file.write_text('{"cuda": "13.0", "architectures": ["8.0", "9.0a"], "ptx": ["10.0a"]}')
    build = Build.read(file)
    covered = {one for one in [(8, 0), (8, 6), (9, 0), (9, 1), (10, 0), (10, 3)] if build.covers(one)}
    assert covered == {(8, 0), (8, 6), (9, 0), (10, 0)}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("status", [0, 9])
def test_asks_nvml(tmp_path, status):
    """The second device is lost; with status 9 the driver is not loaded."""
    source, library = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(FAKE_NVML.replace("STATUS", str(status)))
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    with Driver(str(library)) as driver:
        assert driver.cuda_version() == (None if status else (12, 8))
        assert driver.capabilities() == (() if status else ((8, 1), (8, 3)))


def test_without_nvml_nothing_is_known(tmp_path):
    with Driver(str(tmp_path / "libmissing.so")) as driver:
        assert driver.cuda_version() is None
        assert driver.capabilities() == ()


def test_here():
    """The backend's state fits what PyTorch has, and the library is opened only where it can be used."""
    status = muladd.backends()["cuda"]
    assert judge(detect(), BUILD, "muladd-cuda").ok is (status.state is State.LOADED)
    is_open = "libmuladd_cuda.so" in Path("/proc/self/maps").read_text()
    assert is_open is (status.state is State.LOADED)
    if torch.version.cuda is None and torch.version.hip is None:
        assert status.state is State.UNSUPPORTED
        assert status.reason == f"torch {torch.__version__} is built without CUDA"
        assert muladd.mul(torch.ones(3), torch.ones(3)).sum() == 3


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_requiring_it_tells_why():
    with pytest.raises(BackendUnavailableError, match="without CUDA"):
        muladd.require("cuda")


ROCM_PLUGIN = """
from opwheel.registry import Backend, hookimpl

@hookimpl
def opwheel_backend():
    register = lambda library: library.impl("mul", lambda a, b: a * b)
    return Backend("rocm", "cuda", "CUDA", register=register, operators=["mul"])
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the key is taken")
def test_a_rocm_backend_takes_the_key_where_this_one_stays_out(tmp_path):
    """ROCm's tensors have CUDA's device type and dispatch key."""
    (tmp_path / "rocm_plugin.py").write_text(ROCM_PLUGIN)
    metadata = tmp_path / "rocm-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rocm\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[muladd.backends]\nrocm = rocm_plugin\n")
    code = "import muladd; print({name: (str(s.state), s.dispatch_key) for name, s in muladd.backends().items()})"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)}
    )
    assert "'cuda': ('unsupported', 'CUDA')" in result.stdout, result.stderr
    assert "'rocm': ('loaded', 'CUDA')" in result.stdout
