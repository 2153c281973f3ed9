"""Calls operators 500,000 times from 8 threads, compares every result, and prints as JSON what was wrong and what grew.

Each thread has operands of its own and shares some with the others, which are only read. The operators take turns:
functional, with out=, in place, with a gradient, of rows. Results are compared in every bit with those of one thread.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

import muladd
import torch
import transformer_ops
from opwheel.memory.usage import allocated
from torch import Tensor

THREADS, ROUNDS, CALLS = 8, 10, 6_500  # calls of each thread in a round


class Operands(NamedTuple):
    """``x`` and ``target`` are a thread's own."""

    x: Tensor
    target: Tensor
    shared: Tensor
    weight: Tensor


def with_gradient(one: Operands) -> Tensor:
    x = one.x.clone().requires_grad_()
    muladd.fma(x, one.shared, muladd.mul(x, one.shared)).sum().backward()
    assert x.grad is not None
    return x.grad


def rows_with_gradient(one: Operands) -> Tensor:
    x = one.x.clone().requires_grad_()
    transformer_ops.rms_norm(x, one.weight, 1e-6).sum().backward()
    assert x.grad is not None
    return x.grad


OPERATORS: dict[str, Callable[[Operands], Tensor]] = {
    "muladd": lambda one: muladd.muladd(one.x, one.shared, 0.5),
    "out": lambda one: muladd.fma(one.x, one.shared, one.x, out=one.target),
    "in place": lambda one: muladd.muladd_(one.x.clone(), one.shared, 2.0),
    "converted": lambda one: muladd.scale(one.x.half(), 3.0),
    "gradient": with_gradient,
    "rows": lambda one: transformer_ops.softmax(one.x),
    "gradient of rows": rows_with_gradient,
    "vmap": lambda one: torch.vmap(muladd.mul)(one.x, one.shared),
}


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(4, 33, generator=generator)
    weight = torch.randn(33, generator=generator)
    operands = [
        Operands(torch.randn(4, 33, generator=generator), torch.empty(4, 33), shared, weight) for _ in range(THREADS)
    ]
    expected = [{name: operator(one).clone() for name, operator in OPERATORS.items()} for one in operands]
    wrong: list[str] = []
    counts = [0] * THREADS

    def work(index: int, calls: int) -> None:
        names = list(OPERATORS)
        try:
            for i in range(calls):
                name = names[(i + index) % len(names)]
                if not torch.equal(OPERATORS[name](operands[index]), expected[index][name]):
                    wrong.append(f"{name} in thread {index}, call {i}")
                counts[index] += 1
        except Exception as error:  # every thread's is of interest
            wrong.append(f"thread {index}: {type(error).__name__}: {error}")

    def in_threads(calls: int) -> None:
        threads = [threading.Thread(target=work, args=(index, calls)) for index in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def memory() -> tuple[int, int]:
        gc.collect()
        return allocated() or 0, sys.getallocatedblocks()  # without the lock Python has an allocator of its own

    in_threads(CALLS)  # each thread's first calls, and what allocators keep
    before = memory()
    for _ in range(ROUNDS - 1):
        in_threads(CALLS)
    after = memory()
    report = {
        "python": sys.version,
        "torch": torch.__version__,
        "has_lock": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "threads": THREADS,
        "calls": sum(counts),
        "wrong": wrong[:20],
        "growth": dict(zip(("bytes", "objects"), map(int.__sub__, after, before), strict=True)),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
