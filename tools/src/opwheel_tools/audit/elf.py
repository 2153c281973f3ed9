"""The tables of a shared library that the dynamic loader reads: what it needs, and its symbols with their versions."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import Section, SymbolTableSection

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
        machine: the processor that it is for, as in the tags of wheels: ``x86_64``, ``aarch64``.
        needed: the libraries that it must find.
        search: folders to look for them first, ``DT_RPATH`` and ``DT_RUNPATH``, each with colons between them.
        symbols: the dynamic symbols.
        versions: those that the library needs of others.
    """

    machine: str
    needed: list[str]
    search: list[str]
    symbols: list[Symbol]
    versions: list[str]

    @property
    def glibc(self) -> tuple[int, ...]:
        """The newest version of the C library that is needed; empty for none."""
        found = (re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", version) for version in self.versions)
        return max((tuple(map(int, one[1].split("."))) for one in found if one), default=())


def read_tables(path: Path) -> Tables:
    """Read a shared library's tables.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file.
    """
    with path.open("rb") as file:
        try:
            elf = ELFFile(file)
        except ELFError:
            elf = None
        if elf is None or elf.elfclass != 64 or not elf.little_endian:
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        sections = list(elf.iter_sections())
        tags = [tag for one in sections if isinstance(one, DynamicSection) for tag in one.iter_tags()]
        versions = dict(_versions(sections))
        return Tables(
            machine=str(elf["e_machine"]).removeprefix("EM_").lower(),
            needed=[str(tag.needed) for tag in tags if tag.entry.d_tag == "DT_NEEDED"],  # type: ignore[attr-defined]
            search=[getattr(tag, name) for tag in tags for name in ("rpath", "runpath") if hasattr(tag, name)],
            symbols=list(_symbols(sections, versions)),
            versions=list(versions.values()),
        )


def _versions(sections: list[Section]) -> Iterator[tuple[int, str]]:
    """The versions that are needed of other libraries, by the index that symbols have."""
    for section in sections:
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                yield from ((version["vna_other"] & _INDEX, version.name) for version in versions)


def _symbols(sections: list[Section], versions: dict[int, str]) -> Iterator[Symbol]:
    # Not by GNUVerSymSection.iter_symbols(), which reads each name again.
    tables = [
        struct.unpack(f"<{one.num_symbols()}H", one.data()) for one in sections if isinstance(one, GNUVerSymSection)
    ]
    for section in sections:
        if not isinstance(section, SymbolTableSection) or section["sh_type"] != "SHT_DYNSYM":
            continue
        indices = tables[0] if tables else (0,) * section.num_symbols()
        for symbol, index in zip(section.iter_symbols(), indices, strict=True):
            if symbol.name:  # sections have none, nor the first entry
                is_weak = symbol["st_info"]["bind"] == "STB_WEAK"
                version = versions.get(index & _INDEX, "")
                yield Symbol(symbol.name, symbol["st_shndx"] != "SHN_UNDEF", is_weak, version)
