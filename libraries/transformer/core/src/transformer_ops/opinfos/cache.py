"""Calls of writing into a paged cache for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from opwheel_tools import ErrorSample, OpInfo, Sample

from .tensors import randn


def _samples(device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    key, value = (randn(3, 2, width, device=device, dtype=dtype) for width in (8, 4))
    caches = [randn(4, 5, 2, width, device=device, dtype=dtype) for width in (8, 4)]
    for slots in ([7, -1, 19], [-1, 0, 3], [-1, -2, -1]):
        yield Sample(key, value, *(cache.clone() for cache in caches), torch.tensor(slots, device=device))


def _errors(device: str) -> Iterator[ErrorSample]:
    key, cache = torch.ones(1, 2, 8, device=device), torch.ones(4, 5, 2, 8, device=device)
    beyond, too_many = (torch.tensor(slots, device=device) for slots in ([20], [0, 1]))
    yield ErrorSample(Sample(key, key, cache, cache.clone(), beyond), (RuntimeError, IndexError), by_values=True)
    yield ErrorSample(Sample(key, key, cache, cache.clone(), too_many), (RuntimeError, IndexError))
    slot = torch.tensor([0], device=device)
    yield ErrorSample(Sample(key, key, cache, cache, slot), RuntimeError, "'value_cache' shares memory with")


INFOS = {
    "reshape_and_cache": OpInfo(
        samples=_samples,
        errors=_errors,
    ),
}
