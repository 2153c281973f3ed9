"""Something is mapped right behind the heap of this process, so that freed memory stays in it: the peak of a call."""

from __future__ import annotations

import ctypes

import torch
from opwheel.memory.usage import peak

PAGE = 4096
READ_AND_WRITE = 3
PRIVATE_AND_ANONYMOUS = 0x22

library = ctypes.CDLL(None)
library.sbrk.restype = library.mmap.restype = ctypes.c_void_p
end_of_heap = -(-library.sbrk(0) // PAGE) * PAGE
library.mmap(
    ctypes.c_void_p(end_of_heap),
    ctypes.c_size_t(PAGE),
    READ_AND_WRITE,
    PRIVATE_AND_ANONYMOUS,
    -1,
    ctypes.c_long(0),
)


def large() -> torch.Tensor:
    return torch.ones(2**22)


first = torch.ones(2**22 + 2**20)
del first  # from now on glibc takes what is as large from its heap
large()
large()
print(peak(large))
