"""Writes the bill of materials of wheels, in CycloneDX's JSON: `python -m release.sbom dist sbom.cdx.json`.

A component for each wheel, with its hash, and one for each other package that a wheel requires, without a version: that
is chosen where the wheels are installed. The same wheels give the same bytes.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from email.message import Message
from pathlib import Path
from typing import Any


def bill_of_materials(wheels: Iterable[Path]) -> dict[str, Any]:
    """The document (https://cyclonedx.org/docs/1.6/json).

    Args:
        wheels: of one release; several of one project, for different platforms, are components of their own.
    """
    metadata = {wheel: _metadata(wheel) for wheel in sorted(wheels)}
    own: dict[str, list[str]] = {_normal(message["Name"]): [] for message in metadata.values()}
    for wheel, message in metadata.items():
        own[_normal(message["Name"])].append(wheel.name)
    required = {wheel.name: sorted(set(_required(message))) for wheel, message in metadata.items()}
    others = sorted({name for names in required.values() for name in names} - own.keys())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": [
            *(_own_component(wheel, message) for wheel, message in metadata.items()),
            *({"type": "library", "bom-ref": name, "name": name, "purl": f"pkg:pypi/{name}"} for name in others),
        ],
        "dependencies": [
            *(
                {"ref": ref, "dependsOn": [one for name in names for one in own.get(name, [name])]}
                for ref, names in required.items()
            ),
            *({"ref": name} for name in others),
        ],
    }


def _own_component(wheel: Path, message: Message) -> dict[str, Any]:
    name = _normal(message["Name"])
    return {
        "type": "library",
        "bom-ref": wheel.name,
        "name": name,
        "version": message["Version"],
        "description": message["Summary"],
        "licenses": [{"license": {"id": message["License-Expression"]}}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
        "purl": f"pkg:pypi/{name}@{message['Version']}?file_name={wheel.name}",
    }


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(path))


def _required(message: Message) -> Iterable[str]:
    """Names of what it always needs, on some Python at least: what an extra adds is left out."""
    for text in message.get_all("Requires-Dist", []):
        if "extra ==" not in text and (name := re.match(r"[\w.-]+", text)):
            yield _normal(name[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: Sequence[str]) -> int:
    """Write the file; exit code 1 where there is no wheel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the wheels")
    parser.add_argument("output", type=Path)
    options = parser.parse_args(arguments)
    wheels = list(options.folder.glob("*.whl"))
    if not wheels:
        print(f"there is no wheel in {options.folder}", file=sys.stderr)
        return 1
    options.output.write_text(json.dumps(bill_of_materials(wheels), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
