"""Names that are looked up when they are used, and attributes of objects."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..names import Missing, find

found = cache(find)


def is_missing(path: str) -> bool:
    """Whether this PyTorch lacks a name."""
    return isinstance(found(path), Missing)


def attribute(of: Any, name: str, path: str) -> Any:
    """An object's attribute, or what raises in its place where objects of its kind have none in this PyTorch."""
    missing = found(path)
    return missing if isinstance(missing, Missing) else getattr(of, name)
