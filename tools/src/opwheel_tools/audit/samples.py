"""Calls of operators: given by somebody, or generated from the schema where that is safe."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from opwheel._torch import private

from .calls import Call, overload

GENERATED = "generated from the schema"  # the origin of a call
_MOST_PER_OPERATOR = 8


class SamplesError(Exception):
    """The function that gives samples does not."""


def given(function: str, operators: list[str]) -> list[Call]:
    """The calls that a function gives.

    Args:
        function: ``"module:function"``. It takes an operator's name, ``"namespace::name.overload"``, and gives
            ``SampleInput``s as ``torch.testing`` has them: ``input``, ``args`` and ``kwargs``.
        operators: that it is asked for.

    Raises:
        SamplesError: there is no such function, or it raises.
    """
    module, _, name = function.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
        return [
            Call(operator, (sample.input, *sample.args), dict(sample.kwargs))
            for operator in operators
            for sample in list(make(operator))[:_MOST_PER_OPERATOR]
        ]
    except Exception as error:
        raise SamplesError(f"{function}: {type(error).__name__}: {error}") from error


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
