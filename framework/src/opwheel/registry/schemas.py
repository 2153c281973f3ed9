"""Opens the schema library, which defines the operators, and reads their schemas back from it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from .._torch.private import is_defined, is_namespace_defined, parse_schema
from .abi import read_notes
from .elf import check_complete


class Core:
    """What an operator library has without backends. ``schemas`` have no namespace."""

    def __init__(self, namespace: str, distribution: str, abi: int = 0, schemas: tuple[str, ...] = ()) -> None:
        self.namespace = namespace
        self.distribution = distribution
        self.abi = abi
        self.schemas = schemas

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all schemas, with the overload: ``"name"``, ``"name.out"``."""
        return tuple(schema.partition("(")[0] for schema in self.schemas)


def open_schemas(namespace: str, path: Path, distribution: str, operators: Iterable[str]) -> Core:
    """Open the schema library: the ABI number, and the schemas that it has defined.

    Raises:
        ImportError: the library cannot be opened, is not a schema library of this namespace, or has a schema that
            PyTorch does not understand, or something else in this process has defined the namespace already.
    """
    notes = read_notes(path)
    if not _is_open(path):
        _check_namespace_is_free(namespace, distribution, operators)
        _check_understood(notes.schemas, path)
    try:
        check_complete(path)
        # For all to see: the libraries of backends look at the schemas before they register kernels.
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError as error:
        problem = f"{distribution} cannot open its schema library {path}: {error}"
        raise ImportError(f"{problem}; {_advice(path, distribution)}") from error
    try:
        texts = getattr(library, f"{namespace}_schemas")
    except AttributeError as error:
        problem = f"{path} is not the schema library of {distribution}: {error}"
        raise ImportError(f"{problem}; {_advice(path, distribution)}") from error
    texts.restype = ctypes.POINTER(ctypes.c_char_p)
    return Core(namespace, distribution, notes.abi or 0, tuple(_until_null(texts())))


def _advice(path: Path, distribution: str) -> str:
    from .absence import how_to_bundle
    from .hiding import find_hiding

    package = path.parent.name
    hiding = find_hiding(package, distribution)
    if hiding:
        return f"{hiding.reason}; {hiding.fix}"
    return how_to_bundle(package, distribution) or f"pip install --force-reinstall {distribution}"


def _is_open(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _check_namespace_is_free(namespace: str, distribution: str, operators: Iterable[str]) -> None:
    # A second definition, of the namespace or of an operator, would end the process inside of PyTorch's static
    # initialisers.
    overloads = [f"{namespace}::{name}{suffix}" for name in operators for suffix in ("", ".out", "_")]
    taken = [overload for overload in overloads if is_defined(overload)]
    if taken or is_namespace_defined(namespace):
        what = f"{namespace!r} is already defined in this process{f' ({taken[0]})' if taken else ''}"
        raise ImportError(
            f"the operator namespace {what}, by another copy of {distribution} or another package; import only one of "
            "them"
        )


def _check_understood(schemas: Iterable[str], path: Path) -> None:
    # PyTorch would end the process inside of its static initialisers.
    for text in schemas:
        if "::" in text.partition("(")[0]:
            raise ImportError(f"{path}: the schema {text!r} names a namespace; leave it out, it is the library's")
        try:
            parse_schema(text)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0].strip()
            if "seen_default_arg" in reason:  # an assertion of PyTorch's
                reason = "an argument without a default follows one with a default"
            raise ImportError(f"{path}: PyTorch does not understand the schema {text!r}: {reason}") from None


def _until_null(texts: Mapping[int, bytes | None]) -> list[str]:
    result: list[str] = []
    while (text := texts[len(result)]) is not None:
        result.append(text.decode())
    return result
