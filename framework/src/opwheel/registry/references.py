"""Tracks the operators whose registered kernel is only their reference."""

from __future__ import annotations

# Names with the namespace, and dispatch keys.
_registered: set[tuple[str, str]] = set()


def note(qualified_name: str, dispatch_key: str) -> None:
    """A backend registers the reference as its kernel."""
    _registered.add((qualified_name, dispatch_key))


def forget(namespace: str, dispatch_key: str) -> None:
    """What was registered there is registered no more."""
    now = _registered.copy()  # in one step: another library may be loaded meanwhile
    of_library = {one for one in now if one[0].startswith(f"{namespace}::") and one[1] == dispatch_key}
    _registered.difference_update(of_library)


def is_reference(qualified_name: str, dispatch_key: str) -> bool:
    """Whether the kernel there is the operator's reference."""
    return (qualified_name, dispatch_key) in _registered
