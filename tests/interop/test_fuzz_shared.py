"""Operators of transformer_ops that write, with arguments of every dtype in one storage.

What shares no byte is computed, and nothing is written out of its bounds; what does share some is refused.
"""

import os
import re
from random import Random

import pytest
import torch
import transformer_ops

from tests.interop.fuzzing.bytes import share_bytes, share_places, somewhere

EXAMPLES = int(os.environ.get("TEST_FUZZ_EXAMPLES", "20000")) // 4
SEED = int(os.environ.get("TEST_FUZZ_SEED", "0"))
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OF_CACHES = (*FLOATING, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)


def _cache(make):
    caches = make("key_cache", 4, 2, 2, 3), make("value_cache", 4, 2, 2, 2)
    slots = torch.tensor([5, -1, 0])
    return transformer_ops.reshape_and_cache, (make("key", 3, 2, 3), make("value", 3, 2, 2), *caches, slots)


def _rms_norm(make):
    return _into_out(transformer_ops.rms_norm), (make("x", 3, 4), make("weight", 4), make("out", 3, 4))


def _swiglu(make):
    return _into_out(transformer_ops.swiglu), (make("a", 3, 4), make("b", 3, 4), make("out", 3, 4))


def _into_out(function):
    return lambda *tensors: function(*tensors[:-1], out=tensors[-1])


def _add_rms_norm(make):
    return transformer_ops.fused_add_rms_norm_, (make("x", 3, 4), make("residual", 3, 4), make("weight", 4))


# The dtypes of each, what it writes, elements of the storage, and a call with tensors that are made by name and shape.
OPERATORS = {
    "reshape_and_cache": (OF_CACHES, ("key_cache", "value_cache"), 500, _cache),
    "rms_norm.out": (FLOATING, ("out",), 100, _rms_norm),
    "swiglu.out": (FLOATING, ("out",), 100, _swiglu),
    "fused_add_rms_norm_": (FLOATING, ("x", "residual"), 100, _add_rms_norm),
}


def is_refused(named, written):
    """Whether the call writes where it reads, or twice into one place."""
    pairs = [(one, other) for one in written for other in named if one != other]
    return any(share_places(named[one]) for one in written) or any(share_bytes(named[a], named[b]) for a, b in pairs)


def refusal(function, arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        return str(error)
    return "nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_arguments_in_one_storage(name):
    dtypes, written, room, call = OPERATORS[name]
    refused = dict.fromkeys(dtypes, 0)
    for number in range(SEED, SEED + EXAMPLES):
        random = Random(number)
        dtype = random.choice(dtypes)
        generator = torch.Generator().manual_seed(number)
        values = torch.randint(0, 2 if dtype is torch.bool else 6, (room,), generator=generator).to(dtype)
        storage, named = values.clone().untyped_storage(), {}

        def make(argument, *shape, random=random, storage=storage, dtype=dtype, named=named):
            named[argument] = somewhere(random, storage, shape, dtype)
            return named[argument]

        function, arguments = call(make)
        copies = {argument: tensor.clone() for argument, tensor in named.items()}
        words = f"TEST_FUZZ_SEED={number}: {dtype} " + ", ".join(
            f"{argument} {tensor.stride()} from {tensor.storage_offset()}" for argument, tensor in named.items()
        )
        if is_refused(named, written):
            refused[dtype] += 1
            assert re.search("shares memory with|share one place in memory", refusal(function, arguments)), words
            wanted = values
        else:
            function(*arguments)
            apart, with_copies = call(lambda argument, *_, copies=copies: copies[argument])
            apart(*with_copies)
            wanted = values.clone()
            for argument in written:
                place = named[argument]
                torch.empty(0, dtype=dtype).set_(
                    wanted.untyped_storage(), place.storage_offset(), place.shape, place.stride()
                ).copy_(copies[argument])
        found = torch.empty(0, dtype=dtype).set_(storage, 0, values.shape, values.stride())
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, msg=lambda text, words=words: f"{words}: {text}")
    least = EXAMPLES // len(dtypes) // 10
    assert all(count >= least for count in refused.values()), refused
