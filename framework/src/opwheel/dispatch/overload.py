"""The schema of one overload, as the dispatch kernels need it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .. import _torch_private as private
from .declaration import Operator


class Overload:
    """One overload of a declared operator: ``axpby``, ``axpby.out`` or ``axpby_``."""

    def __init__(self, operator: Operator, namespace: str, schema_text: str) -> None:
        self.operator = operator
        self.namespace = namespace
        self.schema_text = schema_text

    def __repr__(self) -> str:
        return f"Overload({self.qualified_name})"

    @cached_property
    def name(self) -> str:
        """Such as ``"axpby.out"``."""
        return self.schema_text.partition("(")[0]

    @cached_property
    def qualified_name(self) -> str:
        """Such as ``"waves::axpby.out"``."""
        return f"{self.namespace}::{self.name}"

    @cached_property
    def op(self) -> Any:
        """The callable, ``torch.ops.waves.axpby.out``."""
        base, _, overload = self.name.partition(".")
        return getattr(getattr(getattr(torch.ops, self.namespace), base), overload or "default")

    @cached_property
    def schema(self) -> Any:
        return private.parse_schema(self.schema_text)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the positional arguments."""
        return tuple(argument.name for argument in self.schema.arguments if not argument.kwarg_only)

    @cached_property
    def tensor_arguments(self) -> tuple[str, ...]:
        """Names of the positional arguments that are tensors."""
        return tuple(
            argument.name
            for argument in self.schema.arguments
            if not argument.kwarg_only and str(argument.type) == "Tensor"
        )

    @property
    def is_out(self) -> bool:
        """Whether the result goes into the keyword-only argument ``out``."""
        return self.name.endswith(".out")

    @property
    def is_in_place(self) -> bool:
        """Whether the first argument is overwritten."""
        return self.name.endswith("_")

    @property
    def mutates(self) -> bool:
        """Whether some argument is overwritten and handed back."""
        return self.is_out or self.is_in_place

    @property
    def target(self) -> str:
        """Name of the argument that is overwritten."""
        return "out" if self.is_out else self.arguments[0]

    def tensors(self, args: tuple[Any, ...]) -> list[Tensor]:
        """The input tensors among the positional arguments."""
        return [value for name, value in zip(self.arguments, args, strict=True) if name in self.tensor_arguments]

    def mutated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """The tensor that is overwritten."""
        target: Tensor = kwargs["out"] if self.is_out else args[0]
        return target
