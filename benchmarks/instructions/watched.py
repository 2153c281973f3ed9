"""Runs under callgrind: the statements whose names begin with PREFIX, for each instruction set in a process of its own.

python -m benchmarks.instructions.watched LIBRARY CAPABILITY=PREFIX...

With the capability cuda they are those on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import timeit

import torch

from .statements import ON_CUDA, STATEMENTS

_WARM_UP = 10  # until the interpreter has specialised its byte code and allocators have what they need
CALLS = 20
_ROUNDS = 5  # how long malloc searches depends on what was freed before: of the rounds the middle one counts


def _count_all(requests: ctypes.CDLL, capability: str, prefix: str) -> None:
    if capability == "cuda":
        statements = ON_CUDA
    else:
        statements = STATEMENTS
        os.environ["MULADD_CPU_CAPABILITY"] = capability
    import muladd  # in the child: it chooses the kernels when it is first called

    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen = [
        (one, {"torch": torch, "muladd": muladd, **one.operands()}) for one in statements if one.name.startswith(prefix)
    ]
    for one, names in chosen:
        with one.context():
            timeit.timeit(one.statement, number=1, globals=names)  # first calls import and register what they need
    requests.instrument()
    _count(requests, "", "pass", {})  # the first time is not like the others; a dump without a name is not read
    for one, names in chosen * _ROUNDS:
        with one.context():
            _count(requests, f"{capability} empty {one.name}", "pass", names)
            _count(requests, f"{capability} {one.name}", one.statement, names)


def _count(requests: ctypes.CDLL, name: str, statement: str, names: dict[str, object]) -> None:
    timeit.timeit(statement, number=_WARM_UP, globals=names)
    # timeit's loop costs next to nothing, collects no garbage and asks for the time right before and after it.
    turns = iter((requests.begin, functools.partial(requests.end, name.encode())))
    timeit.timeit(statement, number=CALLS, globals=names, timer=lambda: next(turns)() or 0.0)


def main() -> None:
    """Fork: PyTorch, whose import is most of the work, is imported once."""
    library, *parts = sys.argv[1:]
    requests = ctypes.CDLL(library)
    if not requests.under_valgrind():
        raise SystemExit("this program needs callgrind around it: python -m benchmarks.instructions")
    for part in parts:
        capability, _, prefix = part.partition("=")
        if os.fork() == 0:
            _count_all(requests, capability, prefix)
            os._exit(0)
        if os.wait()[1] != 0:
            raise SystemExit(f"counting the {capability} kernels failed")


if __name__ == "__main__":
    main()
