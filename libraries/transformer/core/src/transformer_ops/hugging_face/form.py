"""What modules of known code compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Form:
    """What modules with a known ``forward`` compute, and the ``forward`` that computes it by operators.

    Attributes:
        is_last: whether the operator that takes its place may be the last one in a module around it, whose gradients
            backward hooks of the older kind see.
    """

    is_last = False

    def operator(self, _module: Any) -> str:
        """The name of the operator that takes the place of a part of the module; empty if none does."""
        return ""

    def obstacle(self, _module: Any) -> str:
        """What keeps it from that; empty if nothing does."""
        return ""

    def forward(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """A ``forward`` by operators, from the module's own."""
        raise NotImplementedError

    def sample(self, _module: Any) -> tuple[Any, ...] | None:
        """Small random arguments of ``forward``; None if it needs others."""
        return None
