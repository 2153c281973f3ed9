"""Times implementations in processes with other environment variables: for what PyTorch decides when it starts.

So does the dynamic loader: an allocator that takes the place of the C library's is loaded before everything else.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from opwheel.memory.usage import give_back

from .statement import LocalStatement
from .suite import Case, Implementation, Suite
from .unavailable import UnavailableError

_prepared: dict[str, LocalStatement] = {}  # of a process that times for another one: the case of each implementation


class OtherProcess:
    """One process with an environment of its own, and the implementations that are timed in it."""

    def __init__(self, suite: Suite, environment: Mapping[str, str], preloaded: str = "") -> None:
        if not suite.module:
            raise UnavailableError("the suite does not say which module another process would import it from")
        self._module = suite.module
        library = _find(preloaded) if preloaded else ""
        before = {"LD_PRELOAD": f"{library} {os.environ.get('LD_PRELOAD', '')}".strip()} if library else {}
        with _environment({**environment, **before}):  # a spawned process has them from its first instruction on
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            self.run(torch.set_num_threads, torch.get_num_threads())
        if library and not self.run(_has_mapped, library):
            self.close()
            raise UnavailableError(f"the process that was to preload {library} has not loaded it")

    def prepare(self, implementation: Implementation, case: Case) -> RemoteStatement:
        """Make the case's operands there and check the implementation: raises what LocalStatement raises."""
        self.run(_prepare, self._module, implementation.name, case)
        return RemoteStatement(self, implementation.name)

    def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function of a module there."""
        return self._pool.submit(function, *arguments).result()

    def forget(self) -> None:
        """Free the operands there."""
        self.run(_forget)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


class RemoteStatement:
    """In another process, whose own clock counts."""

    def __init__(self, process: OtherProcess, name: str) -> None:
        self._process, self._name = process, name

    def timeit(self, number: int) -> float:
        """Seconds that so many runs take."""
        return float(self._process.run(_timeit, self._name, number))

    def resident_bytes(self) -> int | None:
        """What one run adds to the memory of that process."""
        found: int | None = self._process.run(_resident_bytes, self._name)
        return found


def _find(name: str) -> str:
    """How the dynamic loader finds a shared library."""
    found = ctypes.util.find_library(name)
    if found is None:
        raise UnavailableError(f"there is no lib{name} on this system")
    return found


def _has_mapped(library: str) -> bool:
    return library in Path("/proc/self/maps").read_text()  # preloading works nowhere else


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _prepare(module: str, name: str, case: Case) -> None:
    suite: Suite = importlib.import_module(module).SUITE
    (implementation,) = (one for one in suite.others if one.name == name)
    _prepared[name] = LocalStatement(suite, implementation, case, suite.operands(case, "cpu"))
    give_back()  # as the runner does in its own process


def _forget() -> None:
    _prepared.clear()


def _timeit(name: str, number: int) -> float:
    return _prepared[name].timeit(number)


def _resident_bytes(name: str) -> int | None:
    return _prepared[name].resident_bytes()
