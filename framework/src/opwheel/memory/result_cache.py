"""Memory of large results on a CPU that is kept for the next ones: how much, and how to free it.

The allocator is in ``csrc/memory``, a native library that is built for one minor release of PyTorch
(:mod:`opwheel._torch.native`); it is one for all operator libraries of a process. Where there is no native library,
nothing is kept: the amounts are 0. ``docs/large-results.md`` says what it is for and what it costs.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from .._torch.native import open_library

_YEAR_S = 365 * 24 * 3600


def kept_bytes() -> int:
    """The memory that is kept and not in use."""
    return int(_call("bytes"))


def limit() -> int:
    """The most that is kept, in bytes: 1 GiB, or an eighth of the machine's memory where that is less."""
    return int(_call("limit"))


def allowance() -> int:
    """The most that may be kept now, in bytes.

    The limit, but not more than an eighth of the memory that the machine, and the control groups that the process is
    in, have left; nothing where the process's address space or data is limited (``RLIMIT_AS``, ``RLIMIT_DATA``).
    """
    return int(_call("allowance"))


def set_limit(size: int) -> None:
    """Keep at most ``size`` bytes from now on; nothing with 0.

    Raises:
        ValueError: it is negative, or not a whole number.
    """
    if not isinstance(size, int) or not 0 <= size < 2**64:
        raise ValueError(f"a limit of {size!r} bytes: it must be a whole number, 0 or more")
    _call("set_limit", size)


def lifetime() -> float:
    """How long what nobody takes is kept, in seconds: 10."""
    return float(_call("lifetime"))


def set_lifetime(seconds: float) -> None:
    """Keep what nobody takes for at most so many seconds.

    Raises:
        ValueError: it is negative, or more than a year.
    """
    if not 0 <= seconds <= _YEAR_S:
        raise ValueError(f"a lifetime of {seconds!r} seconds: it must be from 0 to {_YEAR_S}, a year")
    _call("set_lifetime", seconds)


def empty() -> None:
    """Return what is kept to the system."""
    _call("empty")


def describe(policy: str) -> str:
    """One line for people.

    Args:
        policy: of the operator library, ``"keep"`` or ``"never"``.
    """
    reason = why_not()
    if not reason and not (policy == "keep" and limit()):
        reason = f"policy: {policy}, limit: {limit() >> 20} MiB"
    elif not reason and not allowance():
        reason = ", ".join(f"{name} is set" for name in _limits()) or "little memory is left"
    if reason:
        return f"result cache: no memory of large results is kept ({reason})"
    kept = f"up to {limit() >> 20} MiB of large results' memory is kept for the next ones"
    return f"result cache: {kept} (policy: {policy})"


def allocate_function() -> ctypes.c_void_p | None:
    """What backends are given, ``opwheel_cache_empty_strided``; None where there is no native library."""
    library = _library()
    return None if isinstance(library, str) else ctypes.cast(library.opwheel_cache_empty_strided, ctypes.c_void_p)


def why_not() -> str:
    """Why nothing can be kept in this environment; empty if it can."""
    library = _library()
    return library if isinstance(library, str) else ""


def _limits() -> list[str]:
    """Those of this process under which nothing is kept, as ``framework/src/opwheel/csrc/memory_left.h`` has them."""
    import resource  # which Windows has not

    names = ("RLIMIT_AS", "RLIMIT_DATA")
    return [name for name in names if resource.getrlimit(getattr(resource, name))[0] != resource.RLIM_INFINITY]


def _call(function: str, *arguments: float) -> Any:
    """One of the native library's functions; 0 where there is no library."""
    library = _library()
    return 0 if isinstance(library, str) else getattr(library, f"opwheel_cache_{function}")(*arguments)


@cache
def _library() -> ctypes.CDLL | str:
    library = open_library("memory")
    if isinstance(library, str):
        return library
    for name in ("bytes", "limit", "allowance"):
        getattr(library, f"opwheel_cache_{name}").restype = ctypes.c_uint64
    library.opwheel_cache_set_limit.argtypes = [ctypes.c_uint64]
    library.opwheel_cache_lifetime.restype = ctypes.c_double
    library.opwheel_cache_set_lifetime.argtypes = [ctypes.c_double]
    return library
