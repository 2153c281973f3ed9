"""Checks of the same call made again: later, in threads, in memory that holds something else."""

# ruff: noqa: ARG001
from __future__ import annotations

import concurrent.futures
import warnings
from typing import Any

import torch

from .common import close, copies, require_values, with_tensors


def repeatable(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """The same call gives the same, time after time."""
    require_values(op)
    first = op(*copies(args), **copies(kwargs))
    want = copies(first)
    for _ in range(3):
        close(op(*copies(args), **copies(kwargs)), want, "the same call again")
    close(first, want, "the result of a call, after later calls")


def threads(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Calls in several threads give what one after another they give."""
    require_values(op)
    given = []
    for k in range(4):
        scaled = with_tensors((args, kwargs), lambda x: x * (1 + k / 8) if x.is_floating_point() else x.clone())  # noqa: B023
        given.append(scaled)
    want = [op(*copies(a), **copies(k)) for a, k in given]
    with concurrent.futures.ThreadPoolExecutor(len(given)) as pool:
        for _ in range(3):
            running = [pool.submit(op, *copies(a), **copies(k)) for a, k in given]
            close([one.result() for one in running], want, "calls in four threads")


def uninitialized(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> None:
    """Results do not depend on what new memory holds."""
    require_values(op)
    want = copies(op(*copies(args), **copies(kwargs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = copies((args, kwargs))
        settings: Any = torch.utils.deterministic
        settings.fill_uninitialized_memory = True  # with nan, or the largest integer
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            got = op(*given[0], **given[1])
        finally:
            torch.use_deterministic_algorithms(False)
    close(got, want, "new memory filled with nan before the call")
