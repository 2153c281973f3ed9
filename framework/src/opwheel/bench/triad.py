"""The hand-written streaming triad: compiled when it is needed, for exactly this processor."""

from __future__ import annotations

import ctypes
import functools
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from .unavailable import UnavailableError

_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
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
    command = compiler()
    source = Path(__file__).with_name("triad.cpp")
    flags = (*_FLAGS, *(_X86_FLAGS if platform.machine() == "x86_64" else ()))
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "triad.so")
        built = subprocess.run([*command, *flags, str(source), "-o", str(binary)], capture_output=True, text=True)
        if built.returncode != 0:
            message = built.stderr.strip() or f"exit code {built.returncode}"
            raise UnavailableError(f"{command[0]} cannot compile it: {message.splitlines()[0]}")
        return ctypes.CDLL(str(binary))


def compiler() -> list[str]:
    """The host's C++ compiler."""
    # Not at the top: the package needs setuptools, which only builds and this do.
    try:
        from ..build import toolchain
    except ImportError as error:
        raise UnavailableError(f"{error}; the compiler is found with setuptools: pip install setuptools") from error
    try:
        return toolchain.find_cxx()
    except toolchain.ToolchainError as error:
        raise UnavailableError(str(error)) from error
