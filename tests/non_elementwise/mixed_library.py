"""The library that new-library writes, with an element-wise and a row operator, and backends of it for other devices.

What new-backend writes computes the row operator, softmax, by its reference; ``put_kernel`` puts a kernel in its place.
"""

from __future__ import annotations

from pathlib import Path

from opwheel_tools import scaffold

from tests.third_party.environment import IS_WHOLE_KIT, KERNEL_TESTS

NAME = "waves"
SOURCES = Path(__file__).parent / "softmax"
# A sample compiled takes seconds, and there is no Triton for simulated devices.
KIT = ("-k", f"{KERNEL_TESTS} or (test_samples and not compiled{'' if IS_WHOLE_KIT else ' and not opcheck'})")


def new_library(folder: Path) -> Path:
    """The project, in a new folder."""
    return scaffold.new_library(NAME, output=folder / NAME).folder


def put_kernel(project: Path, library: Path, language: str) -> None:
    """Write a kernel for softmax into a backend's project, as its README says."""
    kernels = project / "csrc/kernels.cpp"
    if language == "cuda":
        _replace(project / "setup.py", "csrc/kernels.cpp", "csrc/kernels_of_rows.cu")
        kernels.unlink()
        (project / "csrc/kernels_of_rows.cu").write_text((SOURCES / "cuda.cu").read_text())
    elif language == "sycl":
        kernels.write_text((SOURCES / "sycl.cpp").read_text())
        (project / "csrc/rows.h").write_text((SOURCES / "rows.h").read_text())
        device = project / "csrc/device/kernels.cpp"
        device.write_text((SOURCES / "device.cpp").read_text() + device.read_text())
    else:  # a device whose memory the host reads: the library's own kernel for the CPU
        text = (library / "backends/cpu/csrc/kernels.cpp").read_text()
        kernels.write_text(text.replace(".on_cpu()", "").replace("CPU, m)", "PrivateUse1, m)"))


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
