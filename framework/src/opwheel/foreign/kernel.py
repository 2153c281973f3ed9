"""The decision about a call, and the kernel in Python that acts on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .._torch import private
from .condition import Condition
from .declaration import ForeignKernel


class Decision(NamedTuple):
    """Whose kernel computes a call.

    ``ours`` says whether it is the library's; ``reason`` is the condition that decided: the first that the call does
    not meet, or empty.
    """

    ours: bool
    reason: str


class Rules:
    """All the conditions of a declaration.

    Args:
        declaration: of the kernel.
        schema: of the operator.

    Raises:
        ValueError: a condition has something that is not supported.
    """

    def __init__(self, declaration: ForeignKernel, schema: Any) -> None:
        self.device_type = declaration.device_type
        self.names = [argument.name for argument in schema.arguments]
        self._defaults = {argument.name: private.default_of(argument) for argument in schema.arguments}
        self.conditions = [Condition(text, self.names) for text in declaration.conditions]

    def decide(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Decision:
        """Whose kernel computes a call with these arguments."""
        arguments = {**self._defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor) and (problem := self._why_not_plain(value)):
                return Decision(False, f"{name} {problem}")
        if private.user_mode_is_active():
            return Decision(False, "a dispatch mode is entered, which sees the operator's own parts")
        for condition in self.conditions:
            if not condition.holds(arguments):
                return Decision(False, f"not: {condition.text}")
        return Decision(True, "")

    def _why_not_plain(self, tensor: torch.Tensor) -> str:
        """Why the conditions are not asked about a tensor, with its name before it; empty if they are."""
        if not private.is_plain_or_traced(tensor):
            return f"is a {type(tensor).__name__}"
        if private.is_wrapped(tensor):
            return "is transformed by torch.func"
        if tensor.device.type != self.device_type:
            return f"is on {tensor.device.type}, not on {self.device_type}"
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
            return "is not dense"
        if tensor.is_conj() or tensor.is_neg():
            return "is conjugated or negated lazily"
        if not all(type(number) is int for number in (*tensor.shape, *tensor.stride())):
            return "has sizes that are not known"
        return "may have a tangent" if private.forward_ad_is_active() else ""


class ForeignPythonKernel:
    """The kernel at the operator's place: calls ours, or the one that was there.

    Args:
        declaration: of ours.
        rules: its conditions.
        previous: the kernel that was there, called with a set of dispatch keys and the arguments.
    """

    def __init__(self, declaration: ForeignKernel, rules: Rules, previous: Callable[..., Any]) -> None:
        self._function = declaration.function
        self._rules = rules
        self._previous = previous
        self._autocast = f"Autocast{private.dispatch_key_of(declaration.device_type)}"

    def __call__(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._rules.decide(args, kwargs).ours:
            return self._previous(keys, *args, **kwargs)
        return self.ours(*args, **kwargs)

    def ours(self, *args: Any, **kwargs: Any) -> Any:
        """What the declaration's function computes; autocast has cast what the operator itself wants to have cast."""
        with private.without_dispatch_key(self._autocast):
            return self._function(*args, **kwargs)
