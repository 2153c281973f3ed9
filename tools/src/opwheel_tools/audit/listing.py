"""What is registered for an operator: schema, dispatch keys and where each kernel comes from."""

from __future__ import annotations

import re
from typing import NamedTuple

from opwheel._torch.private import kernel_registrations, schema_of

_KERNEL = re.compile(r"^(\w+)(?:\[alias\])?: (.*)$")
_PLACE = re.compile(r"registered at (.*?):? ?(?:\(| ::|$)")
_OTHER_LINES = ("name", "schema", "debug", "alias analysis kind")


class Listed(NamedTuple):
    """An operator.

    Args:
        operator: its name in the dispatcher.
        schema: its schema; empty where kernels are registered for an operator that nobody has defined.
        kernels: dispatch key -> source line that registered the kernel, as far as PyTorch knows it.
    """

    operator: str
    schema: str
    kernels: dict[str, str]


def describe(operator: str) -> Listed:
    """What the dispatcher holds for an operator."""
    kernels = {}
    for line in kernel_registrations(operator).splitlines():
        found = _KERNEL.match(line)
        if found and found[1] not in _OTHER_LINES and "(inactive)" not in line:
            place = _PLACE.search(found[2])
            kernels[found[1]] = place[1] if place else ""
    schema = schema_of(operator)
    return Listed(operator, "" if schema is None else str(schema), kernels)
