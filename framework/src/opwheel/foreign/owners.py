"""Who has a kernel at an operator and dispatch key, over all libraries of the process."""

from __future__ import annotations

import threading

from .._torch import private
from ..registry.errors import ForeignOperatorError

Place = tuple[str, str]  # the operator with its namespace, and the dispatch key

lock = threading.RLock()  # held while anything is switched
owners: dict[Place, str] = {}  # namespace of the library


def mark(namespace: str) -> str:
    """What the dispatcher says of where a library's kernels were registered."""
    return f"opwheel, for {namespace}"


def check_free(operator: str, key: str, namespace: str) -> None:
    """Refuse an operator at a key where somebody has put a kernel over, or beside, that of its own library.

    Raises:
        ForeignOperatorError: naming who.
    """
    owner = owners.get((operator, key))
    if owner is None and (brought_by := private.native_overrides(operator, key)):
        owner = f"PyTorch's torch._native ({', '.join(brought_by)})"
    places = private.kernels_at(operator, key)
    # One that is under another, or a backend's kernel from Python for what PyTorch composes of other operators.
    is_composite = private.has_kernel(operator, "CompositeImplicitAutograd")
    if owner is None and (len(places) > 1 or (places and is_composite and _is_python(places[0]))):
        owner = f"a kernel registered at {places[0]}"
    if owner is not None:
        raise ForeignOperatorError(
            "OPWHEEL-E101",
            f"{namespace} has a kernel for {operator} at {key}, but that has an owner: {owner}; "
            f"switch that off first, or leave {operator} out",
        )


def check_on_top(operator: str, key: str, namespace: str) -> None:
    """Refuse to remove our kernel from beneath one that was registered later, which calls it.

    Raises:
        ForeignOperatorError: naming where that was registered.
    """
    places = private.kernels_at(operator, key)
    if places and not places[0].startswith(mark(namespace)):
        raise ForeignOperatorError(
            "OPWHEEL-E101",
            f"{namespace} cannot remove its kernel for {operator} at {key}: another was registered over it at "
            f"{places[0]}; remove that first",
        )


def _is_python(place: str) -> bool:
    return place.rpartition(":")[0].endswith(".py")
