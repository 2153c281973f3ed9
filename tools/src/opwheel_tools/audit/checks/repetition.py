"""Checks of the same call made again: later, in threads, in memory that holds something else."""

# ruff: noqa: ARG001
from __future__ import annotations

import concurrent.futures
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .common import close, copies, outcome, require_values, with_tensors
from .rounding import repeated


def repeatable(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """The same call gives the same, time after time."""
    require_values(op)
    first = outcome(op, *copies((args, kwargs)))
    want = copies(first)
    for _ in range(3):
        got = outcome(op, *copies((args, kwargs)))
        yield from close(got, want, "by the same call again", lambda: repeated(want))
    yield from close(first, want, "of a call, after later calls")


def threads(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Calls in several threads give what one after another they give."""
    require_values(op)
    given = []
    for k in range(4):
        scaled = with_tensors(
            (args, kwargs),
            lambda x: (x * (1 + k / 8)).to(x.dtype) if x.dtype.itemsize > 1 and x.is_floating_point() else x.clone(),  # noqa: B023
        )
        given.append(scaled)
    want = [outcome(op, *copies(one)) for one in given]
    barrier = threading.Barrier(len(given))

    def run(one: Any) -> dict[str, Tensor]:
        barrier.wait()
        return outcome(op, *one)

    with concurrent.futures.ThreadPoolExecutor(len(given)) as pool:
        for _ in range(3):
            for got, other in zip(pool.map(run, copies(given)), want, strict=True):
                yield from close(got, other, "in four threads", lambda: repeated(other))  # noqa: B023


def uninitialized(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Results do not depend on what new memory holds."""
    require_values(op)
    want = copies(outcome(op, *copies((args, kwargs))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = copies((args, kwargs))
        settings: Any = torch.utils.deterministic
        settings.fill_uninitialized_memory = True  # with nan, or the largest integer
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            got = outcome(op, *given)
        finally:
            torch.use_deterministic_algorithms(False)
    yield from close(got, want, "with new memory filled with nan before the call", lambda: repeated(want))
