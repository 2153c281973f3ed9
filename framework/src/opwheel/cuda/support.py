"""Can this machine use the library? What was found and what was built are plain values; judging them is a function."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..registry import Probe

Version = tuple[int, int]

# The first driver that runs what each major release of CUDA builds, by NVIDIA's table of compatibility.
_DRIVERS = {12: 525, 13: 580}


class Build(NamedTuple):
    """What the library was built for: the CUDA release, and the compute capabilities with machine code and with PTX."""

    cuda: Version
    architectures: tuple[Version, ...]
    ptx: tuple[Version, ...]
    exact: tuple[Version, ...] = ()
    """With code that runs on no other revision ("9.0a")."""

    @classmethod
    def read(cls, file: Path) -> "Build":
        """From the file that the build wrote beside the library."""
        values = json.loads(file.read_text())
        portable = {key: [text for text in values[key] if text[-1].isdigit()] for key in ("architectures", "ptx")}
        exact = {text for key in portable for text in values[key] if text not in portable[key]}
        architectures, ptx, exact_versions = (
            tuple(_version(text.rstrip("af")) for text in texts) for texts in (*portable.values(), sorted(exact))
        )
        return cls(_version(values["cuda"]), architectures, ptx, exact_versions)

    def covers(self, capability: Version, driver: Version | None = None) -> bool:
        """Machine code runs on later minor revisions of its own major one, PTX on everything later.

        A driver runs code of every release with its own major number, but compiles PTX only of its own or earlier ones.
        """
        major, minor = capability
        has_code = any(major == code[0] and minor >= code[1] for code in self.architectures)
        compiles = driver is None or driver >= self.cuda
        return has_code or capability in self.exact or (compiles and any(capability >= ptx for ptx in self.ptx))


class Machine(NamedTuple):
    """What is here. None where it could not be found out."""

    torch: str
    torch_cuda: str | None
    torch_hip: str | None = None
    device_count: int = 0
    driver: Version | None = None  # the latest CUDA release that it supports
    capabilities: tuple[Version, ...] = ()


def detect() -> Machine:
    """Ask PyTorch and the driver. No CUDA context is made; with NVML, or without a driver, later forks can use CUDA."""
    import torch

    about = torch.__version__, torch.version.cuda, torch.version.hip
    if torch.version.cuda is None:
        return Machine(*about)
    from .driver import Driver, is_installed

    # PyTorch counts with NVML. Without it (Jetson, some containers) it asks CUDA and refuses CUDA to forked processes:
    # not worth it where the answer is known.
    if not is_installed():
        return Machine(*about)
    with Driver() as driver:
        version = driver.cuda_version()
        return Machine(*about, torch.cuda.device_count(), version, driver.capabilities())


def judge(machine: Machine, build: Build, wheel: str) -> Probe:
    """The answer for a torch with CUDA or ROCm, with what to do about it."""
    built_for = f"compute capability {_listed(build.architectures)}, and PTX for {_listed(build.ptx)} and later"
    if machine.torch_hip is not None:
        return Probe(
            False,
            f"torch {machine.torch} is built for ROCm {machine.torch_hip}, this wheel for CUDA {_shown(build.cuda)}",
            f"build {wheel} for ROCm from source where it can be (docs/cuda.md), or install a torch with CUDA",
        )
    if machine.driver is not None and machine.driver[0] < build.cuda[0]:
        return Probe(
            False,
            f"the NVIDIA driver supports CUDA up to {_shown(machine.driver)}, this wheel needs {_shown(build.cuda)}",
            f"update the NVIDIA driver ({_needed(build.cuda)} or later)",
        )
    if machine.device_count == 0:
        return Probe(
            False,
            f"torch {machine.torch} (CUDA {machine.torch_cuda}) sees no CUDA device",
            f"check nvidia-smi and CUDA_VISIBLE_DEVICES; on a machine without an NVIDIA GPU, remove {wheel}",
        )
    if machine.capabilities and not any(build.covers(one, machine.driver) for one in machine.capabilities):
        return Probe(
            False,
            f"the devices here have compute capability {_listed(machine.capabilities)}, this wheel has code for "
            f"{built_for}",
            f"build {wheel} with TORCH_CUDA_ARCH_LIST set to the device's compute capability, if CUDA "
            f"{_shown(build.cuda)} still supports it",
        )
    return Probe(True, f"{machine.device_count} CUDA device(s), code for {built_for}")


def _needed(cuda: Version) -> str:
    """The driver for programs of a release of CUDA."""
    driver = _DRIVERS.get(cuda[0])
    return f"CUDA {_shown(cuda)} needs {driver}" if driver else f"one for CUDA {_shown(cuda)}"


def _version(text: str) -> Version:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _shown(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _listed(versions: Sequence[Version]) -> str:
    return ", ".join(map(_shown, sorted(set(versions)))) or "none"
