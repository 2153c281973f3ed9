"""Builds for another processor: its compiler, and what the index has for it that libraries are linked with.

A cross build takes headers and libraries out of the target's wheels; nothing of it runs here. What a library declares
is asked of one that is built for this machine first (``opwheel_tools.build.commands``).
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from .torches import download, torches, unpacked

CUDA_RUNTIME = "nvidia-cuda-runtime"


class Target(NamedTuple):
    """A processor that can be built for here.

    Args:
        compiler: the command.
        package: of Debian, that has it.
        skipped: the projects that cannot be built for it, and why.
    """

    compiler: str
    package: str
    skipped: dict[str, str]


TARGETS = {
    "aarch64": Target(
        "aarch64-linux-gnu-g++",
        "g++-aarch64-linux-gnu",
        {
            "sycl": "Intel's SYCL runtime is for x86-64 alone",
            "executorch": "it links ExecuTorch's runtime, which is built for this machine",
        },
    )
}


def variables(machine: str, releases: Sequence[str], cache: Path) -> dict[str, str]:
    """The environment variables of a build for a processor; downloads what it links with, once.

    Args:
        machine: a key of :data:`TARGETS`.
        releases: of PyTorch, to build the framework's native libraries for; empty for the one installed here.
        cache: where what is downloaded is kept.

    Raises:
        SystemExit: the compiler is not there.
        subprocess.CalledProcessError: pip cannot download something, and has said why.
    """
    target = TARGETS[machine]
    if shutil.which(target.compiler) is None:
        raise SystemExit(f"release: there is no {target.compiler}; on Debian: apt-get install {target.package}")
    installed = metadata.version("torch").partition("+")[0]
    runtime = cuda_runtime(machine, cache)
    return {
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "CXX": target.compiler,
        "OPWHEEL_TORCH": str(unpacked(installed, cache, machine)),
        "OPWHEEL_TORCHES": torches(releases or [installed], cache, machine),
        "LDFLAGS": f"-L{runtime}",  # the linker passes over what is for another processor
    }


def cuda_runtime(machine: str, cache: Path) -> Path:
    """The folder with the target's ``libcudart_static.a``, of the release that is installed here."""
    release = metadata.version(CUDA_RUNTIME)
    folder = cache / f"{CUDA_RUNTIME}-{release}-{machine}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            wheel = download(f"{CUDA_RUNTIME}=={release}", Path(temporary), machine)
            new = Path(temporary) / "new"
            new.mkdir()
            with zipfile.ZipFile(wheel) as archive:
                (name,) = (one for one in archive.namelist() if one.endswith("/libcudart_static.a"))
                (new / "libcudart_static.a").write_bytes(archive.read(name))
            new.rename(folder)
    return folder
