"""Another release of a wheel: the same files under another version."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from release.archives import write_wheel


def repack(wheel: Path, version: str, folder: Path, replace: Mapping[bytes, bytes] | None = None) -> Path:
    """Write the wheel with another version, and with bytes replaced in its Python files and libraries."""
    name, old = wheel.name.split("-")[:2]
    output = folder / wheel.name.replace(f"-{old}-", f"-{version}-", 1)
    files = {}
    with zipfile.ZipFile(wheel) as source:
        for info in source.infolist():
            path = info.filename.replace(f"{name}-{old}.dist-info", f"{name}-{version}.dist-info")
            content = source.read(info)
            if path.endswith(("/METADATA", "/_version.py")):
                content = content.replace(old.encode(), version.encode(), 1)
            for this, that in (replace or {}).items() if path.endswith((".py", ".so")) else ():
                content = content.replace(this, that)
            if not info.is_dir():
                files[path] = content
        time = source.infolist()[0].date_time
    write_wheel(files, output, time)
    return output
