"""ROCm: PyTorch's hipify turns the sources into HIP, as text; nothing of CUDA is left that HIP does not have."""

import re
import shutil
from pathlib import Path

import opwheel_tools
import pytest
from torch.utils.hipify import hipify_python

SOURCES = Path(__file__).parents[1] / "csrc"
SDK = [Path(opwheel_tools.get_include(), "opwheel", folder) for folder in ("cuda", "detail/cuda")]
# PyTorch's C interface keeps its names on ROCm, and its device type and dispatch key are CUDA's there.
KEPT = (
    r"aoti_torch_device_type_cuda|aoti_torch_get_current_cuda_stream|\w+::cuda|library, CUDA|cuda::|namespace cuda"
    r"|OPWHEEL_\w+|opwheel/(detail/)?cuda/"
)


@pytest.fixture(scope="module")
def hip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hip") / "csrc"
    shutil.copytree(SOURCES, folder)
    for headers in SDK:
        shutil.copytree(headers, folder, dirs_exist_ok=True)
    results = hipify_python.hipify(
        project_directory=str(folder),
        output_directory=str(folder),
        includes=[f"{folder}/*"],
        extra_files=[str(path) for path in folder.iterdir()],
        is_pytorch_extension=True,
        show_detailed=False,
    )
    # What has nothing of CUDA stays the file that it is.
    return {Path(path).name: Path(result.hipified_path or path).read_text() for path, result in results.items()}


def test_the_kernels_become_hip_kernels(hip):
    assert set(hip) >= {path.name for folder in (SOURCES, *SDK) for path in folder.iterdir()}
    text = hip["enqueue.cuh"]
    assert "__global__" in text
    for word in ("hip/hip_runtime.h", "hipLaunchKernel", "hipError_t", "hipStream_t", "hipGetErrorString"):
        assert word in text


def test_nothing_of_cuda_is_left(hip):
    for name, text in hip.items():
        if re.search(r"#if defined\(__HIPCC__\)\n#error", text):
            continue  # it is not for ROCm and says so
        code = re.sub(r'//.*|"[^"]*"', "", text)
        left = re.findall(r"\bcuda\w+|\bCUDA\w*", re.sub(KEPT, "", code))
        assert not left, f"{name}: {left}"
