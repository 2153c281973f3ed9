"""What is made once in a process, whichever of its threads comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def once(function: Callable[P, R]) -> Callable[P, R]:
    """Call ``function``, which has no arguments, in the first thread that asks; the others wait and get its result.

    ``functools.cache`` lets several threads call it at a time, and keeps the last result: too often for what has an
    effect, such as the definition of an operator, and for what C code keeps a pointer to. Where it raises, the next
    thread calls it again.
    """
    lock = threading.RLock()
    results: list[R] = []

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not results:
            with lock:
                if not results:
                    results.append(function(*args, **kwargs))
        return results[0]

    return call
