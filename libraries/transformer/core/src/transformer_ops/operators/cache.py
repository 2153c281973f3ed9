"""Writing keys and values into a paged cache."""

from __future__ import annotations

import torch
from opwheel import Operator
from torch import Tensor

from .checks import check_apart
from .invariance import ALWAYS


def _reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> None:
    check_apart(value_cache, "value_cache", key_cache, "key_cache")
    if slot_mapping.shape[0] == 0:
        return
    # Shapes do not depend on the slots: a token that is left out stands for the first one that is not, and if there is
    # none, a slot gets what it has.
    used = slot_mapping >= 0
    tokens = torch.where(used, torch.arange(len(used), device=used.device), used.int().argmax())
    slots = slot_mapping[tokens].clamp(min=0)
    at = slots // key_cache.shape[1], slots % key_cache.shape[1]
    for new, cache in ((key, key_cache), (value, value_cache)):
        cache[at] = torch.where(used[tokens, None, None], new[tokens], cache[at])


RESHAPE_AND_CACHE = Operator(
    "reshape_and_cache",
    reference=_reshape_and_cache,
    derivatives=None,
    invariant=ALWAYS,
    doc="""Write the keys and values of tokens into their slots of a paged cache, in place.

    Args:
        key: ``(tokens, heads, length)``, of any dtype that the cache has.
        value: ``(tokens, heads, value_length)``.
        key_cache: ``(blocks, block_size, heads, length)``, of the same dtype. Overwritten.
        value_cache: ``(blocks, block_size, heads, value_length)``. Overwritten.
        slot_mapping: int64 ``(tokens,)``: ``block * block_size + offset`` of each token, or negative: it is left out.
            If several tokens have one slot, the last of them is what is there afterwards on a CPU; on other devices it
            is not defined, and a key may be one token's and its value another's.

    Raises:
        RuntimeError: a shape or dtype does not fit, a slot is not in the caches, or both caches are the same memory.
    """,
)
