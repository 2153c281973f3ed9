"""What binds a shared library to PyTorch, Python, CUDA and the C library: read from its ELF tables alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from . import releases
from .elf import read_tables

# Mangled names of PyTorch's C++ interface, which changes with each release.
UNSTABLE = re.compile(r"_ZN?[KV]*(2at|3c10|5torch)|_ZT[ISV]N?(2at|3c10|5torch)")
_STABLE = re.compile(r"(aoti_torch_|torch_)\w+")
_PYTHON = re.compile(r"_?Py[A-Z_]\w*")


class Binary(NamedTuple):
    """What a shared library needs.

    Args:
        path: of the file.
        needed: the libraries that the loader must find.
        stable: symbols of PyTorch's stable C interface.
        unstable: symbols of PyTorch's C++ interface, which changes with each release.
        torch: lowest release that it can load in, such as ``"2.10"``; empty where unstable symbols tie it to one, or
            where it needs stable symbols that the installed PyTorch does not have.
        python: symbols of CPython.
        glibc: the newest version of the C library that it asks for, such as ``"2.17"``; empty for none.
        cuda: major version of the CUDA runtime that it is linked to; empty for none.
        tag: CPython version and platform in its file's name, such as ``"cpython-311"``; empty for none.
    """

    path: str
    needed: list[str]
    stable: list[str]
    unstable: list[str]
    torch: str
    python: list[str]
    glibc: str
    cuda: str
    tag: str

    @property
    def summary(self) -> str:
        """In one line."""
        least = f"torch >= {self.torch}" if self.torch else "with symbols that the installed torch does not have"
        parts = [
            f"unstable symbols of torch: {len(self.unstable)}, bound to one release" if self.unstable else "",
            f"stable ABI of torch alone, {least}" if self.stable and not self.unstable else "",
            "libpython" if any("python3" in name for name in self.needed) else "",
            f"symbols of CPython: {len(self.python)}" if self.python else "",
            f"built for {self.tag}" if self.tag else "",
            f"glibc >= {self.glibc}" if self.glibc else "",
            f"CUDA {self.cuda}" if self.cuda else "",
        ]
        return ", ".join(part for part in parts if part)


def read(path: Path) -> Binary:
    """What a shared library needs, from its tables.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file.
    """
    tables = read_tables(path)
    undefined = [symbol.name for symbol in tables.symbols if not symbol.is_defined]
    stable = [name for name in undefined if _STABLE.fullmatch(name)]
    unstable = [name for name in undefined if UNSTABLE.match(name)]
    cuda = [found[1] for name in tables.needed if (found := re.match(r"libcudart[-.\w]*?\.so\.(\d+)", name))]
    tag = re.search(r"cpython-\d+|abi3", path.name)
    return Binary(
        path=str(path),
        needed=tables.needed,
        stable=stable,
        unstable=unstable,
        torch="" if unstable else releases.lowest(stable),
        python=[name for name in undefined if _PYTHON.fullmatch(name)],
        glibc=".".join(map(str, tables.glibc)),
        cuda=cuda[0] if cuda else "",
        tag=tag[0] if tag else "",
    )


def of_package(file: str) -> list[Path]:
    """The shared libraries in the folder of a package, given the file of its ``__init__``."""
    return sorted(Path(file).parent.rglob("*.so"))
