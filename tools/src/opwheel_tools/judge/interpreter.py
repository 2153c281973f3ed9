"""Triton's interpreter, within what it can do: one launch after the other, and no arithmetic in bfloat16.

It keeps the place in the grid in one object for all threads, and computes with the bits of bfloat16 as if they were
integers. A kernel that is right on a GPU would be wrong here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

LIMITED = ("binary_op", "unary_op", "create_fma", "create_clampf", "create_dot", "create_atomic_rmw")
_launch = threading.RLock()


def limit() -> bool:
    """Make kernels raise where they compute in bfloat16, and launches wait for each other.

    Returns:
        Whether Triton was imported since the last time, so that kernels may have run without these limits.
    """
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None or hasattr(interpreter.GridExecutor.__call__, "__wrapped__"):
        return False
    bfloat16 = sys.modules["triton.language"].bfloat16
    builder = interpreter.InterpreterBuilder
    for name in LIMITED:
        setattr(builder, name, _without(bfloat16, getattr(builder, name)))
    interpreter.GridExecutor.__call__ = _alone(interpreter.GridExecutor.__call__)
    return True


def _without(bfloat16: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def limited(self: Any, *args: Any) -> Any:
        if any(getattr(getattr(one, "dtype", None), "scalar", None) == bfloat16 for one in args):
            raise NotImplementedError("Triton's interpreter cannot compute in bfloat16; a GPU can")
        return function(self, *args)

    return limited


def _alone(launch: Callable[..., Any]) -> Callable[..., Any]:
    def launch_alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _launch:
            return launch(self, *args, **kwargs)

    launch_alone.__wrapped__ = launch  # type: ignore[attr-defined]
    return launch_alone
