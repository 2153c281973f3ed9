"""How much memory of the host this process takes: what is resident, the most during a call, what is not freed."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PROCESS = Path("/proc/self")
_RUNS = 10  # of work of which it is measured what it keeps
_RESET_PEAK = "5"  # proc(5), clear_refs: VmHWM becomes what is resident now


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc, mallinfo(3)."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]
    uordblks: int
    hblkhd: int
    keepcost: int


def resident() -> int | None:
    """Bytes of this process that are in memory; None where the system does not tell."""
    file = _PROCESS / "statm"
    return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if file.exists() else None


def peak(call: Callable[[], object]) -> int | None:
    """The most bytes that were in memory during a call, beyond those before it; None where the system does not tell.

    The call's results count, and all memory does, whoever allocates it. What an allocator has kept of earlier calls is
    freed first, so that it counts as well when it is used again.
    """
    give_back()
    before = resident()
    try:
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return None
    kept = call()
    status = dict(line.split(":", 1) for line in (_PROCESS / "status").read_text().splitlines())
    del kept
    return None if before is None else int(status["VmHWM"].removesuffix("kB")) * 1024 - before


def give_back() -> None:
    """Give what allocators have kept of earlier calls back to the system."""
    from . import result_cache  # imports torch, which not everybody here needs

    gc.collect()
    result_cache.empty()
    library = ctypes.CDLL(None)
    if trim := getattr(library, "malloc_trim", None):
        trim(0)
        _give_back_the_top(library)


def _give_back_the_top(library: ctypes.CDLL) -> None:
    """What is free at the end of glibc's heap: trimming leaves it where the heap cannot shrink (something follows it).

    It becomes a block for a moment, whose pages the system may drop.
    """
    found, page = _malloc_info(library), os.sysconf("SC_PAGE_SIZE")
    size = 0 if found is None else int(found.keepcost) - page
    if size < 2 * page:
        return
    library.malloc.restype = ctypes.c_void_p
    block = library.malloc(ctypes.c_size_t(size))
    first, end = -(-block // page) * page, (block + size) // page * page
    library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)
    library.free(ctypes.c_void_p(block))


def allocated() -> int | None:
    """Bytes that the C library has allocated and not freed; without glibc, those that are resident.

    What is resident hides small leaks: they fill memory that has been freed and not been returned to the system.
    """
    found = _malloc_info(ctypes.CDLL(None))
    return resident() if found is None else int(found.uordblks) + int(found.hblkhd)


def _malloc_info(library: ctypes.CDLL) -> _MallocInfo | None:
    information = getattr(library, "mallinfo2", None)
    if information is None:
        return None
    information.restype = _MallocInfo
    found: _MallocInfo = information()
    return found


def kept_by(
    work: Callable[[], object], tolerated: int = 0, allocated: Callable[[], int | None] = allocated
) -> int | None:
    """The fewest bytes that one of ten runs of ``work`` leaves allocated; None where the system does not tell.

    What is kept on purpose, to be used again, is taken once, and what leaks each time. The first run that leaves no
    more than is tolerated is the last. Ten, because the C library counts what each thread keeps of freed blocks as
    allocated: where a kernel's threads take turns, one run in five leaves some hundred bytes more than the others.
    """
    least = None
    for _ in range(_RUNS):
        with quick_garbage_collection():
            before = allocated()
            work()
            gc.collect()
            after = allocated()
        if before is None or after is None:
            return None
        least = after - before if least is None else min(least, after - before)
        if least <= tolerated:
            break
    return least


@contextmanager
def quick_garbage_collection() -> Iterator[None]:
    """``gc.collect()`` looks at objects that are made inside alone: for PyTorch's it takes tenths of a second."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
