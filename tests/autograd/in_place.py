"""An operator that multiplies in place; tests give its declaration."""

from types import SimpleNamespace

import torch
from opwheel.dispatch import register
from opwheel.registry.policy import Policy

_libraries = []  # operators last as long as these


def define_product(namespace, name):
    """Define ``NAME(Tensor x, Tensor w)`` and ``NAME_``, which has a kernel.

    Returns a function that registers a declaration of it, and returns ``NAME_``.
    """
    schemas = (f"{name}(Tensor x, Tensor w) -> Tensor", f"{name}_(Tensor(a!) x, Tensor w) -> Tensor(a!)")
    library = torch.library.Library(namespace, "DEF")
    _libraries.append(library)
    for schema in schemas:
        library.define(schema)
    library.impl(f"{name}_", lambda x, w: x.mul_(w), "CPU")

    def declare(operator):
        register(SimpleNamespace(namespace=namespace, schemas=schemas, policy=Policy()), [operator])
        return getattr(getattr(torch.ops, namespace), f"{name}_")

    return declare
