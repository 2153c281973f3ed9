"""CPythons that are built here, each in an environment of its own: `python -m release.interpreters 3.14 3.14t`.

Their sources are those of Debian's archive, by version and sum; the compiler's first level of optimisation makes them
in minutes. `--torch` also installs a PyTorch: the index has builds for CUDA alone, 5 GB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .debian import download
from .projects import ROOT

_OPTIONS = "OPT=-DNDEBUG -fwrapv -O1"
# What the conformance kit, the registry's tests and an example import, in the newest versions that the index has for
# the Python: those that PyTorch takes here need not have one for every Python.
_TESTS = (
    "numpy",
    "pytest>=9",
    "hypothesis",
    "expecttest",
    "setuptools",
    "ninja",
    "pyelftools",
    "rich",
    "jsonschema",
    "scikit-learn",
)


class Source(NamedTuple):
    """An archive of sources as CPython's authors have released them."""

    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its path in Debian's archive."""
        name = "python" + ".".join(self.version.split(".")[:2])
        return f"pool/main/p/{name}/{name}_{self.version}.orig.tar.xz"


_3_13 = Source("3.13.5", "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640")
_3_14 = Source("3.14.7", "3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81")
_3_15 = Source("3.15.0~rc2", "8d93af5eaaaea5adfd41bd786a7ba3f03f2ad1ab57c6a65e0b963deab91d5ad7")

# By name, with a "t" of those without the global lock: the sources, and the newest PyTorch that the index has for it.
INTERPRETERS = {
    "3.13t": (_3_13, "torch==2.12.0"),
    "3.14": (_3_14, "torch==2.15.0"),
    "3.14t": (_3_14, "torch==2.15.0"),
    "3.15": (_3_15, "torch==2.15.0"),
    "3.15t": (_3_15, "torch==2.15.0"),
}


class Interpreter:
    """The environment of one of ``INTERPRETERS``, in a folder."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        self.folder = folder or ROOT / f".venv-{name}"
        self.python = self.folder / f"bin/python{name}"
        self.is_free_threaded = name.endswith("t")
        self._source, self.torch = INTERPRETERS[name]

    def make(self) -> None:
        """Build it, where that has not been done.

        Raises:
            SystemExit: this is no Debian, or its archive does not have the sources.
            subprocess.CalledProcessError: it cannot be built; the folder's ``build.log`` says why.
        """
        done = self.folder / ".built"
        if done.exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        build = self.folder / "build"
        build.mkdir(parents=True)
        with tarfile.open(download(self._source.file, self._source.sha256, build)) as opened:
            opened.extractall(build, filter="data")
        (sources,) = (path.parent for path in build.glob("*/configure"))
        lock = ["--disable-gil"] if self.is_free_threaded else []
        with (self.folder / "build.log").open("w") as log:
            for command in (
                ["./configure", f"--prefix={self.folder}", *lock, "--disable-test-modules"],
                ["make", "--silent", f"-j{os.cpu_count()}", _OPTIONS],
                ["make", "--silent", "install", _OPTIONS],
            ):
                subprocess.run(command, cwd=sources, stdout=log, stderr=subprocess.STDOUT, check=True)
        shutil.rmtree(build)
        done.touch()

    def make_with_torch(self) -> None:
        """Build it, and install PyTorch and what the tests import, where that has not been done.

        Raises:
            SystemExit, subprocess.CalledProcessError: as :meth:`make`, or the index does not have them.
        """
        self.make()
        done = self.folder / ".torch"
        if not done.exists():
            self.install([self.torch, *_TESTS])
            done.touch()

    def install(self, requirements: Sequence[str], *options: str) -> None:
        """Requirements or files of wheels, with what they require."""
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        subprocess.run([*pip, "--only-binary=:all:", *options, *requirements], check=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m release.interpreters", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", choices=INTERPRETERS, metavar="VERSION", help=", ".join(INTERPRETERS))
    parser.add_argument("--torch", action="store_true", help="install PyTorch and what the tests import, too")
    options = parser.parse_args()
    for name in options.names:
        interpreter = Interpreter(name)
        if options.torch:
            interpreter.make_with_torch()
        else:
            interpreter.make()
        print(interpreter.python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
