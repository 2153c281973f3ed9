"""What binds a shared library to PyTorch, Python, CUDA and the C library: read from its ELF tables alone."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import releases

_UNSTABLE = re.compile(r"_ZN?[KV]*(2at|3c10|5torch)|_ZT[ISV]N?(2at|3c10|5torch)")
_STABLE = re.compile(r"(aoti_torch_|torch_)\w+")
_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_DYNAMIC, _DYNSYM, _VERNEED = 6, 11, 0x6FFFFFFE
_NEEDED = 1


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
    """Read a shared library's tables.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file.
    """
    content = path.read_bytes()
    if not content.startswith(b"\x7fELF\x02\x01"):
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    sections = list(_sections(content))
    needed = list(_needed(content, sections))
    undefined = [name for name, is_defined in _symbols(content, sections).items() if not is_defined]
    stable = [name for name in undefined if _STABLE.fullmatch(name)]
    unstable = [name for name in undefined if _UNSTABLE.match(name)]
    versions = [tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in _versions(content, sections)]
    cuda = [found[1] for name in needed if (found := re.match(r"libcudart[-.\w]*?\.so\.(\d+)", name))]
    tag = re.search(r"cpython-\d+|abi3", path.name)
    return Binary(
        path=str(path),
        needed=needed,
        stable=stable,
        unstable=unstable,
        torch="" if unstable else releases.lowest(stable),
        python=[name for name in undefined if _PYTHON.fullmatch(name)],
        glibc=".".join(map(str, max(versions))) if versions else "",
        cuda=cuda[0] if cuda else "",
        tag=tag[0] if tag else "",
    )


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


def _sections(content: bytes) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    for i in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", content, table + i * size)
        yield _Section(kind, offset, length, link)


def _string(content: bytes, strings: _Section, at: int) -> str:
    start = strings.offset + at
    return content[start : content.index(b"\0", start)].decode()


def _needed(content: bytes, sections: list[_Section]) -> Iterator[str]:
    for section in sections:
        if section.kind == _DYNAMIC:
            for at in range(section.offset, section.offset + section.size, 16):
                kind, value = struct.unpack_from("<qQ", content, at)
                if kind == _NEEDED:
                    yield _string(content, sections[section.link], value)


def _symbols(content: bytes, sections: list[_Section]) -> dict[str, bool]:
    found = {}
    for section in sections:
        if section.kind == _DYNSYM:
            for at in range(section.offset, section.offset + section.size, 24):
                name, _, _, where = struct.unpack_from("<IBBH", content, at)
                found[_string(content, sections[section.link], name)] = where != 0
    found.pop("", None)
    return found


def _versions(content: bytes, sections: list[_Section]) -> Iterator[str]:
    """The versions of the C library that symbols ask for."""
    for section in sections:
        if section.kind != _VERNEED:
            continue
        at, more = section.offset, True
        while more:
            _, count, _, first, following = struct.unpack_from("<HHIII", content, at)
            one = at + first
            for _ in range(count):
                _, _, _, name, next_one = struct.unpack_from("<IHHII", content, one)
                text = _string(content, sections[section.link], name)
                if re.fullmatch(r"GLIBC_\d+(\.\d+)+", text):
                    yield text
                one += next_one
            at, more = at + following, following != 0


def symbols(path: Path) -> dict[str, bool]:
    """A shared library's dynamic symbols, and whether it defines each; the others it needs."""
    content = path.read_bytes()
    return _symbols(content, list(_sections(content)))


def of_package(file: str) -> list[Path]:
    """The shared libraries in the folder of a package, given the file of its ``__init__``."""
    return sorted(Path(file).parent.rglob("*.so"))
