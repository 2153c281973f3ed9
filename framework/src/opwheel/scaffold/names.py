"""Which names a new project may have."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Collection


class ScaffoldError(ValueError):
    """What was asked for cannot be written: what was given, what is possible, what to do."""


def check_name(kind: str, name: str, reserved: Collection[str]) -> None:
    """Check a name that becomes a distribution's and, with underscores, a Python package's.

    Raises:
        ScaffoldError: it is malformed, a word of Python, or in use.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ScaffoldError(
            f"{name!r} is not a valid name for {kind}: use lower-case letters and digits, in parts joined by '-', and "
            "begin with a letter, as in 'acme' or 'acme-x2'"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ScaffoldError(f"{name!r} is a keyword of Python; choose another name for {kind}")
    if name.replace("_", "-") in reserved:
        raise ScaffoldError(
            f"{name!r} is reserved, as are {', '.join(sorted(set(reserved) - {name}))}; choose another name for {kind}"
        )


def check_package(package: str) -> None:
    """Check that a package of this name would not hide a module of Python.

    Raises:
        ScaffoldError: it would.
    """
    if package in sys.stdlib_module_names:
        raise ScaffoldError(f"{package!r} is a module of Python's standard library; choose another name")
