"""How a backend comes to all that it claims where others serve a part of it."""

from collections.abc import Mapping

from opwheel.registry import BackendStatus, State


def admitted(statuses: Mapping[str, BackendStatus], name: str) -> str:
    """The value of ``<PREFIX>_BACKENDS`` that lets a backend load, and of the others those at other dispatch keys."""
    key = statuses[name].dispatch_key
    elsewhere = {one.name for one in statuses.values() if one.state is State.LOADED and one.dispatch_key != key}
    return ",".join(sorted({*elsewhere, name}))
