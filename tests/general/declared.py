"""Declares operators whose schemas are defined: what a library does, without its backends."""

from types import SimpleNamespace

from opwheel.dispatch import register
from opwheel.registry.policy import Policy


def declare(namespace, schemas, declared):
    """Declare the operators of a library; their overloads."""
    description = SimpleNamespace(
        namespace=namespace,
        schemas=schemas,
        policy=Policy(),
        backend_at=lambda *_: "",
        load_pending=lambda: False,
        no_kernel_error=lambda *_: RuntimeError("no kernel"),
    )
    return register(description, declared)
