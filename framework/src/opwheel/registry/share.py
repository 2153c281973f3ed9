"""What a backend's register function is given: a part of PyTorch's dispatcher, without what other backends have."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch


class Share(torch.library.Library):
    """A library of kind IMPL for one dispatch key, which leaves out the operators that other backends serve there.

    An author registers all kernels and need not know which of them are wanted.

    Args:
        namespace: of the operators.
        dispatch_key: of the backend.
        others: names of the operators that are not registered: those that the backend claims and another one has.
    """

    def __init__(self, namespace: str, dispatch_key: str, others: Collection[str]) -> None:
        super().__init__(namespace, "IMPL", dispatch_key)  # type: ignore[no-untyped-call]
        self._others = frozenset(others)

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> None:
        """As ``torch.library.Library.impl``; does nothing for an operator that another backend has at this key."""
        name = op_name if isinstance(op_name, str) else op_name.name()
        is_here = dispatch_key in ("", self.dispatch_key)
        if not (is_here and name.rpartition("::")[2] in self._others):
            super().impl(op_name, fn, dispatch_key, **options)  # type: ignore[no-untyped-call]
