"""Tensors in one storage, and the bytes that they consist of, written out."""

from __future__ import annotations

from random import Random

import numpy as np
import torch
from torch import Tensor


def places(x: Tensor) -> np.ndarray:
    """The address of the first byte of each element, in the order of the elements."""
    steps = [np.arange(size) * stride * x.itemsize for size, stride in zip(x.shape, x.stride(), strict=True)]
    return x.data_ptr() + sum(np.ix_(*steps), start=np.zeros(x.shape, dtype=np.int64)).ravel()


def share_bytes(a: Tensor, b: Tensor) -> bool:
    """Whether some byte belongs to both."""
    both = [np.unique(np.add.outer(places(x), np.arange(x.itemsize))) for x in (a, b)]
    return bool(len(np.intersect1d(*both, assume_unique=True)))


def share_places(x: Tensor) -> bool:
    """Whether some elements of it are in one place."""
    return len(np.unique(places(x))) < x.numel()


def somewhere(random: Random, storage: torch.UntypedStorage, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of that shape in the storage: whole, with gaps, in another order of dimensions, sometimes expanded."""
    order = random.sample(range(len(shape)), len(shape)) if random.random() < 0.5 else range(len(shape))[::-1]
    strides, following = [0] * len(shape), random.choice((1, 1, 2))
    for dim in order:
        strides[dim] = following
        following *= shape[dim]
        following += random.choice((0, 0, 0, 1, shape[dim]))
    if shape and random.random() < 0.05:
        strides[random.randrange(len(shape))] = 0
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    room = storage.nbytes() // dtype.itemsize
    assert reach <= room, "the storage is too small for it"
    return torch.empty(0, dtype=dtype).set_(storage, random.randrange(room - reach + 1), shape, strides)
