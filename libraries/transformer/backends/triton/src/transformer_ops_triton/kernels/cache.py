"""Writing keys and values into a paged cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arguments import check_apart, check_device, check_dtype, check_indices, check_same, check_shape, check_written
from .launch import block_of, launch

BLOCK = 1024
# Of each size in bytes the dtype in whose name elements are moved.
MOVED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SUPPORTED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)


@triton.jit
def _write(
    new,
    strides,
    cache,
    cache_strides,
    slots,
    slot_count,
    block_size,
    count,
    LENGTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Of one token; strides are of tokens, heads and elements, those of the cache of blocks and of slots in one before.
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    if (slot < 0) | (slot >= slot_count):
        return
    new += token * strides[0]
    cache += slot // block_size * cache_strides[0] + slot % block_size * cache_strides[1]
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < count
        head, k = (at // LENGTH).to(tl.int64), (at % LENGTH).to(tl.int64)
        value = tl.load(new + head * strides[1] + k * strides[2], mask=mask)
        tl.store(cache + head * cache_strides[2] + k * cache_strides[3], value, mask=mask)


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """See ``transformer_ops.reshape_and_cache``."""
    check_dtype(key, "key", *SUPPORTED)
    check_shape(key, "key", -1, -1, -1)
    tokens, heads, length = key.shape
    check_same(value, "value", key, "key")
    check_shape(value, "value", tokens, heads, -1)
    check_same(key_cache, "key_cache", key, "key")
    check_shape(key_cache, "key_cache", -1, -1, heads, length)
    blocks, block_size = key_cache.shape[:2]
    check_same(value_cache, "value_cache", key, "key")
    check_shape(value_cache, "value_cache", blocks, block_size, heads, value.shape[2])
    for cache, name in ((key_cache, "key_cache"), (value_cache, "value_cache")):
        check_written(cache, name, key=key, value=value, slot_mapping=slot_mapping)
    check_apart(value_cache, "value_cache", key_cache, "key_cache")
    check_dtype(slot_mapping, "slot_mapping", torch.int64)
    check_device(slot_mapping, "slot_mapping", key, "key")
    check_shape(slot_mapping, "slot_mapping", tokens)
    slot_count = blocks * block_size
    check_indices(slot_mapping.clamp(min=-1), "slot_mapping", slot_count, "slot of the caches", except_for=-1)
    slots = slot_mapping.contiguous()
    for new, cache in ((key, key_cache), (value, value_cache)):
        moved = MOVED[new.element_size()]
        count = heads * new.shape[2]
        launch(
            _write,
            tokens if count else 0,
            new,
            new.view(moved),
            new.stride(),
            cache.view(moved),
            cache.stride(),
            slots,
            slot_count,
            block_size,
            count,
            LENGTH=new.shape[2],
            **block_of(BLOCK),
        )
