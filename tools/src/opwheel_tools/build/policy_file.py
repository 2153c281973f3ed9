"""Writes plugins.json beside a wheel's plugins.toml: the same document, in a form that Python reads much faster."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def compile_policy(path: Path) -> None:
    """The digest tells the registry whether the document still is what the text says."""
    text = path.read_bytes()
    document = {"sha256": hashlib.sha256(text).hexdigest(), "document": tomllib.loads(text.decode())}
    path.with_suffix(".json").write_text(json.dumps(document, separators=(",", ":"), sort_keys=True))
