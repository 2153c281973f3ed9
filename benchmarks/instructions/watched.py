"""Runs under callgrind: the statements whose names begin with PREFIX, for each instruction set in a process of its own.

python -m benchmarks.instructions.watched LIBRARY CAPABILITY=PREFIX...
"""

from __future__ import annotations

import ctypes
import os
import sys
import timeit
from collections.abc import Iterator

import torch

from .statements import STATEMENTS, Statement

_WARM_UP = 10  # until the interpreter has specialised its byte code and allocators have what they need
CALLS = 5


def _timers(prefix: str) -> Iterator[tuple[Statement, str, str, dict[str, object]]]:
    """Each statement, and the empty one that tells what counting it costs."""
    import muladd  # in the child: when it loads, it chooses the kernels

    for one in STATEMENTS:
        if one.name.startswith(prefix):
            names = {"torch": torch, "muladd": muladd, **one.operands()}
            yield one, f"empty {one.name}", "pass", names
            yield one, one.name, one.statement, names


def _count(requests: ctypes.CDLL, capability: str, prefix: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    timers = list(_timers(prefix))
    for one, _, statement, names in timers:
        with one.context():
            timeit.timeit(statement, number=1, globals=names)  # first calls import and register what they need
    requests.instrument()
    for one, name, statement, names in timers:
        # timeit's loop costs next to nothing, collects no garbage and asks for the time right before and after it.
        turns = iter([requests.begin, lambda name=name: requests.end(f"{capability} {name}".encode())])
        with one.context():
            timeit.timeit(statement, number=_WARM_UP, globals=names)
            timeit.timeit(statement, number=CALLS, globals=names, timer=lambda turns=turns: next(turns)() or 0.0)


def main() -> None:
    """Fork: PyTorch, whose import is most of the work, is imported once."""
    library, *parts = sys.argv[1:]
    requests = ctypes.CDLL(library)
    if not requests.under_valgrind():
        raise SystemExit("this program needs callgrind around it: python -m benchmarks.instructions")
    for part in parts:
        capability, _, prefix = part.partition("=")
        if os.fork() == 0:
            os.environ["MULADD_CPU_CAPABILITY"] = capability
            _count(requests, capability, prefix)
            os._exit(0)
        if os.wait()[1] != 0:
            raise SystemExit(f"counting the {capability} kernels failed")


if __name__ == "__main__":
    main()
