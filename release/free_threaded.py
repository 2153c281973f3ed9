"""An environment of a CPython without its global lock: `python -m release.free_threaded .venv-3.13t`.

The interpreter is built from the sources in Debian's archive, with the compiler's first level of optimisation: it takes
minutes. PyTorch is the newest release that the index has for it; that is a build for CUDA, 5 GB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from .command import run
from .debian import Packages

PYTHON = "python3.13t"
TORCH = "torch==2.12.0"  # the last release with wheels for 3.13t
_RELEASE, _SOURCE, _OPTIONS = "trixie", "python3.13", "OPT=-DNDEBUG -fwrapv -O1"
# What the conformance kit and the registry's tests import, in the newest versions that have a wheel for 3.13t, or for
# every Python, and that PyTorch takes: those here need not have.
_TESTS = ("numpy", "pytest>=9", "hypothesis", "expecttest", "setuptools", "ninja", "pyelftools", "rich", "jsonschema")


class FreeThreaded:
    """The environment in a folder; :meth:`make` makes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / "bin" / PYTHON

    def make(self) -> None:
        """Build the interpreter and install PyTorch, where that has not been done.

        Raises:
            SystemExit: this is no Debian.
            subprocess.CalledProcessError: something cannot be downloaded or built.
        """
        done = self.folder / ".made"
        if done.exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._build()
        self.install([TORCH, *_TESTS])
        done.touch()

    def install(self, requirements: Sequence[str], *options: str) -> None:
        """Requirements or files of wheels, with what they require."""
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--only-binary=:all:", *options, *requirements], check=True)

    def _build(self) -> None:
        build = self.folder / "build"
        archive = Packages(build, release=_RELEASE, kind="deb-src").source(_SOURCE)
        with tarfile.open(archive) as opened:
            opened.extractall(build, filter="data")
        (sources,) = (path.parent for path in build.glob("*/configure"))
        with (self.folder / "build.log").open("w") as log:
            for command in (
                ["./configure", f"--prefix={self.folder}", "--disable-gil", "--disable-test-modules"],
                ["make", "--silent", f"-j{os.cpu_count()}", _OPTIONS],
                ["make", "--silent", "install", _OPTIONS],
            ):
                subprocess.run(command, cwd=sources, stdout=log, stderr=subprocess.STDOUT, check=True)
        shutil.rmtree(build)


if __name__ == "__main__":
    sys.exit(run("release.free_threaded", FreeThreaded))
