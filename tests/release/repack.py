"""Another release of a wheel: the same files under another version."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path


def repack(wheel: Path, version: str, folder: Path, replace: Mapping[bytes, bytes] | None = None) -> Path:
    """Write the wheel with another version, and with bytes replaced in its Python files and libraries."""
    name, old = wheel.name.split("-")[:2]
    output = folder / wheel.name.replace(f"-{old}-", f"-{version}-", 1)
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(output, "w") as target:
        for info in source.infolist():
            path = info.filename.replace(f"{name}-{old}.dist-info", f"{name}-{version}.dist-info")
            content = source.read(info)
            if info.is_dir() or path.endswith(".dist-info/RECORD"):
                continue
            if path.endswith(("/METADATA", "/_version.py")):
                content = content.replace(old.encode(), version.encode(), 1)
            for this, that in (replace or {}).items() if path.endswith((".py", ".so")) else ():
                content = content.replace(this, that)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow([path, f"sha256={digest}", len(content)])
            target.writestr(path, content)
        rows.writerow([f"{name}-{version}.dist-info/RECORD", "", ""])
        target.writestr(f"{name}-{version}.dist-info/RECORD", record.getvalue())
    return output
