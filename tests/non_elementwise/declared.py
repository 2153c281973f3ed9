"""Declares operators whose schemas are defined: what a library and its opinfos do, without its backends."""

from types import MappingProxyType, SimpleNamespace

from opwheel.dispatch import register
from opwheel.registry.policy import Policy
from opwheel_tools.opinfo.lookup import register_op_infos


def declare(namespace, schemas, declared, infos=MappingProxyType({})):
    """Declare the operators of a library, and what tests need of them; their overloads."""
    description = SimpleNamespace(
        namespace=namespace,
        schemas=schemas,
        policy=Policy(),
        backend_at=lambda *_: "",
        load_pending=lambda: False,
        no_kernel_error=lambda *_: RuntimeError("no kernel"),
    )
    overloads = register(description, declared)
    register_op_infos(namespace, infos)
    return overloads
