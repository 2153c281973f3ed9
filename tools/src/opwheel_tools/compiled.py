"""Compiles a small C++ library of the tools for this machine when it is first needed, and keeps it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


class CompileError(RuntimeError):
    """There is no C++ compiler, or it refuses the source.

    Attributes:
        output: all that the compiler says.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output

    code = "OPWHEEL-E081"


def open_compiled(source: Path, flags: Sequence[str], key: str = "") -> ctypes.CDLL:
    """The library that a source compiles to.

    It is kept in ``$XDG_CACHE_HOME/opwheel`` (``~/.cache/opwheel``), by a hash of the source, the command and ``key``.

    Args:
        source: one file of C++.
        flags: of the compiler, besides ``-shared -fPIC``.
        key: what else the library depends on, such as the processor or PyTorch's version.

    Raises:
        CompileError: with the compiler's first line.
    """
    command = [*compiler(), "-shared", "-fPIC", str(source), *flags]
    digest = hashlib.sha256("\0".join([source.read_text(), *command, key]).encode()).hexdigest()[:16]
    folder = _cache_folder()
    library = folder / f"{source.stem}-{digest}.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # of the same file system, so that a rename suffices
            made = Path(scratch, library.name)
            built = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
            if built.returncode != 0:
                message = built.stderr.strip() or f"exit code {built.returncode}"
                raise CompileError(f"{command[0]} cannot compile {source.name}: {message.splitlines()[0]}", message)
            made.replace(library)
    return ctypes.CDLL(str(library))


def kept_source(name: str, text: str) -> Path:
    """A file with a text, in the folder where libraries are kept; its name begins with ``name``."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = _cache_folder()
    source = folder / f"{name}-{digest}.cpp"
    if not source.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch, source.name)
            made.write_text(text)
            made.replace(source)
    return source


def compiler() -> list[str]:
    """The host's C++ compiler.

    Raises:
        CompileError: there is none, or no setuptools, which finds it.
    """
    try:
        from opwheel._build import toolchain  # not at the top: it needs setuptools
    except ImportError as error:
        raise CompileError(f"{error}; the compiler is found with setuptools: pip install setuptools") from error
    try:
        return toolchain.find_cxx()
    except toolchain.ToolchainError as error:
        raise CompileError(str(error)) from error


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "opwheel")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CompileError(f"compiled tools cannot be kept: {error}; set XDG_CACHE_HOME") from error
    return folder
