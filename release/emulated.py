"""An environment of another processor's Python, which QEMU runs: `python -m release.emulated .venv-aarch64`.

It is made of Debian's packages for that processor, which are unpacked and not installed, of PyTorch's wheel for it, and
of what this environment has besides: the same versions, in wheels for it. `FOLDER/bin/python` is a script that starts
the emulator, so that programs that start `sys.executable` work, too; nothing has to be registered with the kernel.
`FOLDER/bin/g++` is the cross compiler as `torch.compile` calls it on the machine itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from .command import run
from .cross import TARGETS
from .debian import Packages
from .platforms import platform_tags

MACHINE, DEBIAN, EMULATOR = "aarch64", "arm64", "qemu-aarch64-static"
# The last release whose wheel for aarch64 on the index is a build for CPUs.
TORCH = "torch==2.10.0"
_SYSTEM = ("python3", "libpython3-dev", "libgomp1", "libstdc++6")
# What PyTorch, the conformance kit and the examples import.
_BORROWED = (
    *("typing_extensions", "filelock", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "numpy"),
    *("pytest", "pluggy", "iniconfig", "packaging", "pygments", "hypothesis", "sortedcontainers", "setuptools"),
    *("scikit-learn", "scipy", "joblib", "cloudpickle", "threadpoolctl", "narwhals", "rich", "markdown-it-py", "mdurl"),
)
_START = """#!/bin/sh
exec {emulator} -L {root} -0 {python} {root}/usr/bin/{name} "$@"
"""
# A cross compiler does not know "native"; QEMU's processor has more than this. Python's header asks for expat's.
_COMPILE = """#!/bin/sh
for word; do
  shift
  test "$word" = -march=native && word=-march=armv8.6-a
  set -- "$@" "$word"
done
exec {compiler} "$@" -idirafter {root}/usr/include
"""


class Emulated:
    """The environment in a folder; :meth:`make` makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / "bin/python"
        self.compiler = self.folder / "bin/g++"
        self._root = self.folder / "root"

    def make(self) -> None:
        """Download and unpack what is not there yet.

        Raises:
            SystemExit: the emulator is not there, or this is no Debian.
            subprocess.CalledProcessError: something cannot be downloaded.
        """
        if shutil.which(EMULATOR) is None:
            raise SystemExit(f"release: there is no {EMULATOR}; on Debian: apt-get install qemu-user-static")
        done = self.folder / ".made"
        if done.exists() and self.compiler.exists():  # made by this version
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self._root.mkdir(parents=True)
        for archive in Packages(self.folder / "apt", DEBIAN).binary(*_SYSTEM):
            subprocess.run(["/usr/bin/dpkg", "-x", str(archive), str(self._root)], check=True)
        shutil.rmtree(self.folder / "apt")
        self._write_scripts()
        self.install([TORCH, *(f"{name}=={metadata.version(name)}" for name in _BORROWED)])
        done.touch()

    @property
    def _name(self) -> str:
        return (self._root / "usr/bin/python3").readlink().name

    def _write_scripts(self) -> None:
        self.python.parent.mkdir()
        start = _START.format(emulator=shutil.which(EMULATOR), root=self._root, python=self.python, name=self._name)
        compiler = _COMPILE.format(compiler=TARGETS[MACHINE].compiler, root=self._root)
        for script, text in ((self.python, start), (self.compiler, compiler)):
            script.write_text(text)
            script.chmod(0o755)
        (self.folder / "pyvenv.cfg").write_text(f"home = {self._root}/usr/bin\n")

    @property
    def site(self) -> Path:
        """The folder of packages."""
        return self.folder / "lib" / self._name / "site-packages"

    def install(self, requirements: Sequence[str]) -> None:
        """Requirements or files of wheels; pip refuses a wheel whose tag is not for the processor."""
        version = self._name.removeprefix("python")
        abis = ("none", "abi3", f"cp{version.replace('.', '')}")
        options = [
            *("--only-binary=:all:", "--no-deps", "--upgrade", "--quiet", "--no-compile", f"--target={self.site}"),
            *(f"--platform={tag}" for tag in platform_tags(MACHINE)),
            *("--implementation=cp", f"--python-version={version}", *(f"--abi={abi}" for abi in abis)),
        ]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *requirements], check=True)


if __name__ == "__main__":
    sys.exit(run("release.emulated", Emulated))
