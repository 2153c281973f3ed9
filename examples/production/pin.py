"""Turns the report of pip's resolver into requirements with hashes: of each package the one file that pip chose.

pip install --dry-run --ignore-installed --quiet --report - --find-links wheels -r requirements.in | python pin.py
"""

from __future__ import annotations

import json
import sys
from typing import Any


def pinned(report: dict[str, Any]) -> list[str]:
    """A line for each package, in the order of their names.

    Args:
        report: what ``pip install --report`` writes.

    Raises:
        ValueError: a package is not from a file with a hash, but from a folder or a repository.
    """
    return sorted(map(_line, report["install"]))


def _line(package: dict[str, Any]) -> str:
    name, version = package["metadata"]["name"], package["metadata"]["version"]
    source = package["download_info"]
    sha256 = source.get("archive_info", {}).get("hashes", {}).get("sha256")
    if sha256 is None:
        raise ValueError(f"{name} has no hash: it is from {source['url']}; build a wheel of it first")
    return f"{name}=={version} --hash=sha256:{sha256}"


if __name__ == "__main__":
    print(*pinned(json.load(sys.stdin)), sep="\n")
