"""The SYCL backend, for Intel GPUs: says what it is and whether this machine can use it; muladd opens its library."""

import re
from importlib import metadata
from pathlib import Path

from opwheel import Backend, Probe, hookimpl

RUNTIME_MAJOR = 9  # of the libsycl that the library was linked with, which torch uses since 2.13
RUNTIME = "dpcpp-cpp-rt"
_FITTING = "'dpcpp-cpp-rt>=2026.0,<2027'"


def runtimes_in_process() -> dict[int, str]:
    """Major version and path of every libsycl that is loaded."""
    maps = Path("/proc/self/maps").read_text()
    return {int(match[2]): match[1] for match in re.finditer(r"(/.*/libsycl\.so\.(\d+)\S*)$", maps, re.MULTILINE)}


def probe() -> Probe:
    """Whether this torch, this SYCL runtime and this machine can run the kernels. Loads nothing."""
    import torch

    if torch.version.xpu is None:
        return Probe(
            False,
            f"torch {torch.__version__} was built without support for Intel GPUs (XPU)",
            "install PyTorch 2.13 or later for the platform XPU: https://pytorch.org/get-started/locally/",
        )
    loaded = runtimes_in_process()
    for major, path in loaded.items():
        if major != RUNTIME_MAJOR:
            return Probe(
                False,
                f"this process has {path}, but muladd-sycl is linked with libsycl.so.{RUNTIME_MAJOR}: major versions "
                "of the SYCL runtime do not mix",
                f"use torch >= 2.13, which comes with libsycl.so.{RUNTIME_MAJOR}, and no other oneAPI release with it "
                "(LD_LIBRARY_PATH, setvars.sh)",
            )
    if not loaded:
        return Probe(False, _no_runtime(), f"pip install {_FITTING}, in the release that your torch requires")
    if torch.xpu.device_count() == 0:
        return Probe(
            False,
            "torch finds no Intel GPU",
            "install the GPU's driver (https://dgpu-docs.intel.com), let this user open /dev/dri/renderD* (group "
            "render), and see that ZE_AFFINITY_MASK does not hide the device",
        )
    return Probe(True)


def _no_runtime() -> str:
    try:
        installed = f"{RUNTIME} {metadata.version(RUNTIME)} is installed, but this torch has not loaded it"
    except metadata.PackageNotFoundError:
        installed = f"{RUNTIME} is not installed"
    return f"the SYCL runtime libsycl.so.{RUNTIME_MAJOR} is missing: {installed}"


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="sycl",
        device_type="xpu",
        dispatch_key="XPU",
        libraries=[Path(__file__).parent / "libmuladd_sycl.so"],
        probe=probe,
        requires=["torch>=2.13"],
    )
