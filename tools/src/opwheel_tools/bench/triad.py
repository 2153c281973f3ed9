"""The hand-written streaming triad: compiled when it is needed, for exactly this processor."""

from __future__ import annotations

import ctypes
import functools
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..compiled import CompileError, open_compiled
from .machine import processor
from .unavailable import UnavailableError

_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp")
# Compilers prefer half of AVX-512's width on many processors; a line of the cache is the whole.
_X86_FLAGS = ("-mprefer-vector-width=512",)
_LINE_BYTES = 64


def prepare(a: Tensor, b: Tensor, c: float, out: Tensor) -> Callable[[Tensor], Tensor]:
    """A function that writes ``a * b + c`` into a tensor like ``out``, with the kind of stores that is faster here."""
    dtype = str(a.dtype).removeprefix("torch.")
    try:
        function = getattr(_library(), f"triad_{dtype}")
    except AttributeError as error:
        raise UnavailableError(f"the C++ compiler has no {dtype}") from error
    number, threads = ctypes.c_double(c), ctypes.c_int(torch.get_num_threads())
    elements = ctypes.c_int64(a.numel())

    def run(target: Tensor, *, streaming: bool) -> Tensor:
        inputs = ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr())  # of tensors that live as long as this
        aligned = target.data_ptr() % _LINE_BYTES == 0
        function(*inputs, number, ctypes.c_void_p(target.data_ptr()), elements, threads, streaming and aligned)
        return target

    scratch = out if out.data_ptr() != a.data_ptr() else torch.empty_like(out)
    streaming = _seconds(lambda: run(scratch, streaming=True)) < _seconds(lambda: run(scratch, streaming=False))
    return functools.partial(run, streaming=streaming)


def _seconds(call: Callable[[], object]) -> float:
    samples = []
    for _ in range(7):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


@functools.cache
def _library() -> ctypes.CDLL:
    flags = (*_FLAGS, *(_X86_FLAGS if platform.machine() == "x86_64" else ()))
    try:
        return open_compiled(Path(__file__).with_name("triad.cpp"), flags, key=processor())
    except CompileError as error:
        raise UnavailableError(str(error)) from error
