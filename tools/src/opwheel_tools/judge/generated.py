"""Calls of operators, generated from their schemas where that is safe."""

from __future__ import annotations

from typing import Any

import torch
from opwheel._torch import private

from .calls import Call, overload

GENERATED = "generated from the schema"  # the origin of a call


def generated(operator: str) -> list[Call]:
    """A call with tensors of numbers between 0.5 and 1.5, or none where an argument has a meaning of its own.

    Integers without a default are indices or sizes as often as not, and lists and strings have rules: then there is no
    call.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    generator = torch.Generator().manual_seed(3)
    for argument in private.schema(overload(operator)).arguments:
        if argument.has_default_value():
            continue
        kind = str(argument.type)
        if kind == "Tensor":
            value: Any = torch.rand((3, 3), generator=generator) + 0.5
        elif kind == "float":
            value = 0.75
        elif kind.startswith("Optional"):
            value = None
        else:
            return []
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return [Call(operator, tuple(args), kwargs, GENERATED)] if args else []
