"""metadata.json of a kernel: what ``kernels`` reads before it loads a variant, with a digest of every file."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

FILE = "metadata.json"


def digest_of(folder: Path) -> dict[str, Any]:
    """The SHA-256 digest of each file in a folder, but for metadata.json and bytecode."""
    files = {
        file.relative_to(folder).as_posix(): base64.b64encode(hashlib.sha256(file.read_bytes()).digest()).decode()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file != folder / FILE and "__pycache__" not in file.parts
    }
    return {"algorithm": "sha256", "files": files}


def write_metadata(folder: Path, *, kernel_id: str, name: str, version: int, license_name: str, device: str) -> None:
    """Write metadata.json, as the last file of a variant."""
    fields = {
        "id": kernel_id,
        "name": name,
        "version": version,
        "license": license_name,
        "python-depends": [],
        "backend": {"type": device},
        "digest": digest_of(folder),
    }
    (folder / FILE).write_text(json.dumps(fields, indent=2) + "\n")
