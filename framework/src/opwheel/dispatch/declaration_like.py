"""What registrations read of an operator's declaration: a type, which nobody imports while a program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch


class DeclarationLike(Protocol):
    """What registrations read of a declaration, as :class:`~.declaration.Operator` has it; described there."""

    @property
    def name(self) -> str: ...
    @property
    def reference(self) -> Callable[..., Any]: ...
    @property
    def rule(self) -> Any: ...  # a Rule, whose file imports that of overloads
    @property
    def derivatives(self) -> Mapping[str, str | Callable[..., Any]] | None: ...
    @property
    def not_differentiable(self) -> tuple[str, ...]: ...
    @property
    def training(self) -> str: ...
    @property
    def autocast(self) -> Any: ...  # an AutocastDeclaration, whose file imports that of rules
    @property
    def compile(self) -> str: ...
    @property
    def flops(self) -> int | Callable[..., int]: ...
    @property
    def tensor_variant(self) -> Mapping[str, str]: ...
    @property
    def invariant(self) -> Mapping[str, Any]: ...
    @property
    def placements(self) -> tuple[str, ...]: ...
    @property
    def sharded(self) -> Any: ...  # a ShardedReduction, or None
    @property
    def fake(self) -> Callable[..., Any] | None: ...
    @property
    def memory_format(self) -> torch.memory_format: ...
    @property
    def deprecated(self) -> str: ...
    @property
    def doc(self) -> str: ...
