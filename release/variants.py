"""Variants of a wheel, as PEP 825 (a draft) describes them: the same wheel with more requirements, for some machines.

They lie beside the plain wheel on an index, with a JSON file that says what each is for. Installers that do not know
the draft, such as pip, ignore them.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .archives import write_wheel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DESCRIPTION = "variants.toml"  # beside a project's pyproject.toml, if its wheel has variants
_SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"


def read_description(path: Path) -> dict[str, Any]:
    """A variants.toml: ``namespaces``, ``variants`` by label and ``providers`` by namespace."""
    with path.open("rb") as file:
        return tomllib.load(file)


def write_variants(wheel: Path, description: dict[str, Any], out: Path) -> dict[str, Path]:
    """Write the wheel's variants and the file ``<name>-<version>-variants.json`` into a folder.

    Args:
        wheel: the plain one.
        description: as :func:`read_description` gives it.
        out: the folder; it is made if it is not there.

    Returns:
        The variants' paths by label.
    """
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        times = {info.filename: info.date_time for info in archive.infolist()}
        files = {name: archive.read(name) for name in archive.namelist()}
    (metadata,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    info = metadata.removesuffix("/METADATA")
    written = {}
    for label, variant in description["variants"].items():
        written[label] = out / f"{wheel.stem}-{label}.whl"
        changed = {
            metadata: _with_requirements(files[metadata], variant["requires"]),
            f"{info}/variant.json": _document(description, [label]),
        }
        write_wheel(files | changed, written[label], times[metadata])
    (out / f"{info.removesuffix('.dist-info')}-variants.json").write_bytes(_document(description, written))
    return written


def _with_requirements(metadata: bytes, requirements: Iterable[str]) -> bytes:
    """Core metadata with more requirements: at the end of its headers, before the empty line."""
    headers, separator, body = metadata.partition(b"\n\n")
    lines = "".join(f"\nRequires-Dist: {requirement}" for requirement in requirements)
    return headers + lines.encode() + separator + body


def _document(description: dict[str, Any], labels: Iterable[str]) -> bytes:
    """The JSON that a variant holds for itself, and an index for all of them."""
    document = {
        "$schema": _SCHEMA,
        "default-priorities": {"namespace": description["namespaces"]},
        "providers": description["providers"],
        "variants": {label: description["variants"][label]["properties"] for label in labels},
    }
    return json.dumps(document, indent=2).encode() + b"\n"
