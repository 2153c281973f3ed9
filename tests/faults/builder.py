"""Writes real installed distributions, with real shared libraries, into a folder for sys.path."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels.cpp"
INTRUDER = Path(__file__).parent / "intruder.cpp"
_HEADERS = ("<torch/csrc/stable/library.h>", '"muladd/operators.h"', '"opwheel/kernels.h"')

_MODULE = """\
from pathlib import Path
from opwheel.registry import Backend, Probe, hookimpl

HERE = Path(__file__).parent
{extra}

@hookimpl
def opwheel_backend():
    return Backend({fields})
"""


def module_source(name: str, extra: str = "", /, **fields: str) -> str:
    """The module of a plugin; fields of its Backend are Python expressions."""
    given = {
        "name": repr(name),
        "device_type": "'npu'",
        "dispatch_key": "'PrivateUse1'",
        **({} if "register" in fields else {"libraries": "[HERE / 'libkernels.so']"}),
        **fields,
    }
    return _MODULE.format(extra=extra, fields=", ".join(f"{field}={value}" for field, value in given.items()))


def with_abi(library: bytes, abi: int) -> bytes:
    """The library as an SDK of that number would have built it (``opwheel/detail/abi.h``)."""
    own = b"opwheel\0" + struct.pack("<i", 1)
    assert library.count(own) == 1
    return library.replace(own, b"opwheel\0" + struct.pack("<i", abi))


class Site:
    """A folder with installed distributions, like site-packages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def install(
        self,
        name: str = "acme",
        /,
        *,
        source: str | bytes | None = None,
        library: Path | bytes | None = None,
        distribution: str = "",
        version: str = "1.0",
        metadata: str | bytes | None = None,
        entry_points: str | bytes | None = None,
        module: bool = True,
        extra: str = "",
        abi: int | None = None,
        files: Mapping[str, str | bytes] | None = None,
        **fields: str,
    ) -> Path:
        """Install a backend's distribution ``muladd-<name>`` and return its package's folder.

        Everything can be replaced by something faulty: ``source`` is the module, ``library`` becomes libkernels.so,
        ``metadata`` and ``entry_points`` are files of the dist-info, ``files`` are more of the package, ``abi``
        is the number that the library says it was built with; further keywords are fields of the Backend.
        """
        distribution = distribution or f"muladd-{name}"
        package = self.root / distribution.replace("-", "_")
        info = self.root / f"{package.name}-{version}.dist-info"
        if metadata is None:
            metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        if entry_points is None:
            entry_points = f"[muladd.backends]\n{name} = {package.name}\n"
        content_of = {
            info / "METADATA": metadata,
            info / "entry_points.txt": entry_points,
        }
        if module:
            content_of[package / "__init__.py"] = module_source(name, extra, **fields) if source is None else source
        if library is not None:
            content = library.read_bytes() if isinstance(library, Path) else library
            content_of[package / "libkernels.so"] = content if abi is None else with_abi(content, abi)
        for file, content in (files or {}).items():
            content_of[Path(os.path.normpath(package / file))] = content
        record = ""
        for path, content in content_of.items():
            content = content.encode() if isinstance(content, str) else content
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path.relative_to(self.root)},sha256={digest},{len(content)}\n"
        (info / "RECORD").write_text(record)
        return package

    def register_device(self) -> None:
        """Install a package whose device npu PyTorch has in every process that imports torch with this folder."""
        register = "from torch.utils import backend_registration\n\ndef autoload():\n"
        register += "    backend_registration._setup_privateuseone_for_python_backend('npu')\n"
        entry_points = "[torch.backends]\nnpu = torch_npu:autoload\n"
        self.install("npu", source=register, distribution="torch-npu", entry_points=entry_points)


class Compiler:
    """Compiles variants of kernels.cpp, and other sources, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._flags: list[str] = []

    def library(
        self, name: str, macros: Mapping[str, str] | None = None, link: Iterable[str] = (), source: Path = KERNELS
    ) -> Path:
        """The shared library that a source becomes with these macros."""
        output = self.folder / f"{name}.so"
        if not output.exists():
            defines = [f"-D{macro}={value}" for macro, value in (macros or {}).items()]
            command = ["g++", *self.flags(), "-O0", *defines, "-include", str(self.headers()), "-shared", str(source)]
            subprocess.run([*command, "-o", str(output), *link, *self.libraries()], check=True)
        return output

    def gone(self) -> Path:
        """A library to link with that is not where it was any more when the program runs."""
        output = self.folder / "gone" / "libgone.so"
        if not output.exists():
            output.parent.mkdir()
            command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(output)]
            subprocess.run(command, input="int gone() { return 0; }", check=True, text=True)
        return output

    def headers(self) -> Path:
        """The headers that all sources include, compiled once: they take most of the time."""
        output = self.folder / "headers.h"
        if not output.exists():
            output.write_text("".join(f"#include {name}\n" for name in _HEADERS))
            command = ["g++", *self.flags(), "-O0", "-x", "c++-header", str(output), "-o", f"{output}.gch"]
            subprocess.run(command, check=True)
        return output

    def flags(self) -> list[str]:
        if not self._flags:
            command = [sys.executable, "-m", "muladd", "config", "--cflags"]
            self._flags = shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return self._flags

    def libraries(self) -> list[str]:
        include = next(Path(flag.removeprefix("-isystem")) for flag in self.flags() if flag.startswith("-isystem"))
        return [f"-L{include.parent / 'lib'}", "-ltorch_cpu", "-lc10"]
