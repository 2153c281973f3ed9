"""The tables of a shared library that the dynamic loader reads: what it needs, and its symbols with their versions."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_64_BIT_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_DYNAMIC, _DYNSYM, _VERNEED, _VERSYM = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF  # kinds of sections
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29  # tags in the dynamic section
_WEAK = 2  # the binding of a symbol
_INDEX = 0x7FFF  # of a version; the other bit says that the symbol is hidden


class Symbol(NamedTuple):
    """A dynamic symbol.

    Args:
        name: as it is in the table, mangled.
        is_defined: by this library; it needs the others.
        is_weak: the library can be loaded without it.
        version: that it needs, such as ``"GLIBC_2.17"``; empty for none.
    """

    name: str
    is_defined: bool
    is_weak: bool
    version: str


class Tables(NamedTuple):
    """What the loader reads.

    Args:
        needed: the libraries that it must find.
        search: folders to look for them first, ``DT_RPATH`` and ``DT_RUNPATH``, each with colons between them.
        symbols: the dynamic symbols.
        versions: those that the library needs of others.
    """

    needed: list[str]
    search: list[str]
    symbols: list[Symbol]
    versions: list[str]

    @property
    def glibc(self) -> tuple[int, ...]:
        """The newest version of the C library that is needed; empty for none."""
        found = (re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", version) for version in self.versions)
        return max((tuple(map(int, one[1].split("."))) for one in found if one), default=())


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


def read_tables(path: Path) -> Tables:
    """Read a shared library's tables.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file.
    """
    content = path.read_bytes()
    if not content.startswith(_64_BIT_LITTLE_ENDIAN):
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    sections = list(_sections(content))
    dynamic = list(_dynamic(content, sections))
    versions = dict(_versions(content, sections))
    return Tables(
        needed=[text for tag, text in dynamic if tag == _NEEDED],
        search=[text for tag, text in dynamic if tag != _NEEDED],
        symbols=list(_symbols(content, sections, versions)),
        versions=list(versions.values()),
    )


def _sections(content: bytes) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    for i in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", content, table + i * size)
        yield _Section(kind, offset, length, link)


def _string(content: bytes, strings: _Section, at: int) -> str:
    start = strings.offset + at
    return content[start : content.index(b"\0", start)].decode()


def _dynamic(content: bytes, sections: list[_Section]) -> Iterator[tuple[int, str]]:
    """Tags of the dynamic section that stand for texts, and these."""
    for section in sections:
        if section.kind == _DYNAMIC:
            for at in range(section.offset, section.offset + section.size, 16):
                tag, value = struct.unpack_from("<qQ", content, at)
                if tag in (_NEEDED, _RPATH, _RUNPATH):
                    yield tag, _string(content, sections[section.link], value)


def _symbols(content: bytes, sections: list[_Section], versions: dict[int, str]) -> Iterator[Symbol]:
    indices = next((section.offset for section in sections if section.kind == _VERSYM), None)
    for section in sections:
        if section.kind != _DYNSYM:
            continue
        for i in range(1, section.size // 24):  # the first entry is empty
            name, info, _, where = struct.unpack_from("<IBBH", content, section.offset + 24 * i)
            (index,) = (0,) if indices is None else struct.unpack_from("<H", content, indices + 2 * i)
            text = _string(content, sections[section.link], name)
            if text:  # sections have none
                yield Symbol(text, where != 0, info >> 4 == _WEAK, versions.get(index & _INDEX, ""))


def _versions(content: bytes, sections: list[_Section]) -> Iterator[tuple[int, str]]:
    """The versions that are needed of other libraries, by the index that symbols have."""
    for section in sections:
        if section.kind != _VERNEED:
            continue
        at, more = section.offset, True
        while more:
            _, count, _, first, following = struct.unpack_from("<HHIII", content, at)
            one = at + first
            for _ in range(count):
                _, _, index, name, next_one = struct.unpack_from("<IHHII", content, one)
                yield index & _INDEX, _string(content, sections[section.link], name)
                one += next_one
            at, more = at + following, following != 0
