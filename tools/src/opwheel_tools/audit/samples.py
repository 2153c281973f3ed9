"""Calls of operators that somebody gives."""

from __future__ import annotations

import importlib

from ..judge.calls import Call

_MOST_PER_OPERATOR = 8


class SamplesError(Exception):
    """The function that gives samples does not."""

    code = "OPWHEEL-E092"


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
