"""Writes the derivatives that a library declares as a source of its schema library, for programs without Python.

The declarations are in Python, and refer to the schemas in the schema library. So it is linked twice: first with an
empty source, then with what the package, once imported, declares::

    python -m opwheel_tools.build.derivatives PACKAGE FILE
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from opwheel._build.device_code import write_if_changed

_SOURCE = """// Written by opwheel_tools.build: the declared derivatives, for opwheel's native Autograd library.
extern "C" __attribute__((visibility("default"))) const char* {package}_derivatives() {{
  return
{text};
}}
"""


def source_of(package: str, text: str) -> str:
    """The source: a C function that returns the text."""
    lines = [f"      {json.dumps(line)}" for line in text.splitlines(keepends=True)]
    return _SOURCE.format(package=package, text="\n".join(lines) or '      ""')


def empty_source(package: str, folder: Path) -> Path:
    """The file for a library that has not been asked yet; one that is there stays."""
    path = folder / "derivatives.cpp"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(source_of(package, ""))
    return path


def main(package: str, file: str) -> None:
    """Import the library and write the source."""
    write_if_changed(Path(file), source_of(package, importlib.import_module(package).library.derivatives()))


if __name__ == "__main__":
    main(*sys.argv[1:])
