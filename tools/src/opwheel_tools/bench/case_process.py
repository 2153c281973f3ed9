"""Measures a case of :mod:`from_samples` in a process of its own: what one case has freed, no other is given.

PyTorch's allocator for CPUs takes new pages from the system for a large result, or a block that some call before it has
freed, which is several times as fast: a case's place in the run would decide.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import torch

from ..opinfo.lookup import MODULE
from . import from_samples
from .from_samples import Case
from .results import Results
from .sampling import Precision
from .suite import Form


class CaseProcesses:
    """Starts a process for each case, from one that has imported the library and nothing more."""

    def __init__(self, package: str) -> None:
        """``package``: where the library is called ``library``."""
        self._package = package
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([package, f"{package}.{MODULE}", from_samples.__name__])

    def run(self, case: Case, device: str, precision: Precision, results: Results, skip: Iterable[str] = ()) -> None:
        """As :func:`from_samples.run`; a process that ends is a finding."""
        which = (case.overload.name, case.index, case.form, case.dtype, case.is_measured)
        settings = (device, precision, tuple(skip), torch.get_num_threads())
        with ProcessPoolExecutor(1, self._context) as pool:
            try:
                found: Results = pool.submit(_run, self._package, which, *settings).result()
            except BrokenProcessPool:
                results.findings.append(f"{case.name}: the process that measured it has ended")
                return
        results.rows += found.rows
        results.notes += found.notes
        results.findings += found.findings


def _run(
    package: str,
    which: tuple[str, int, Form, torch.dtype, bool],
    device: str,
    precision: Precision,
    skip: tuple[str, ...],
    threads: int,
) -> Results:
    torch.set_num_threads(threads)
    name, index, form, dtype, is_measured = which
    overload = importlib.import_module(package).library.overloads[name]
    results = Results({}, {})
    case = Case(overload, index, form, dtype, is_measured)
    from_samples.run(case, device, precision, results, skip)
    return results
