"""Shape-only kernels, for meta and fake tensors: what comes out, without computing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .overload import Overload


def fake_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for meta and fake tensors."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return overload.rule.fake(overload, overload.bind(args, kwargs))

    return kernel
