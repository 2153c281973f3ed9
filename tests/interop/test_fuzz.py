"""Random calls in random surroundings: the operators agree with ATen's, and refuse nothing that those do."""

import os
import warnings
from typing import NamedTuple

import muladd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from muladd.dispatch.elementwise import result_dtype
from muladd.testing.samples import DTYPES
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointError

from tests.interop.fuzzing import calls
from tests.interop.fuzzing.chains import DERIVATIVES, MODES, RELATED, compiled, surrounded, total
from tests.interop.fuzzing.operands import MEMORIES, SHAPES, Operand, broadcast

EXAMPLES = int(os.environ.get("MULADD_FUZZ_EXAMPLES", "20000"))
COMPILED = int(os.environ.get("MULADD_FUZZ_COMPILED", "200"))
OVERLOADS = muladd.overloads


class Call(NamedTuple):
    """What is drawn."""

    name: str
    is_public: bool
    operands: tuple[Operand, ...]
    chain: tuple[str, ...]

    @property
    def overload(self):
        return OVERLOADS[self.name]


class Outcome(NamedTuple):
    """What one way of calling came to."""

    error: Exception | None
    results: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    rooms: tuple[Tensor, ...]  # the operands' memory afterwards


@st.composite
def drawn_calls(draw):
    name = draw(st.sampled_from(sorted(OVERLOADS)))
    overload = OVERLOADS[name]
    count = len(overload.tensor_arguments)
    shapes = list(draw(st.permutations(draw(st.sampled_from(SHAPES))))[:count])
    common = draw(st.sampled_from(DTYPES))
    is_mixed = draw(st.booleans())
    dtypes = [draw(st.sampled_from(DTYPES)) if is_mixed else common for _ in shapes]
    is_differentiable = draw(st.booleans())
    if overload.mutates and draw(st.integers(0, 7)):  # seldom a target that the result does not fit into
        shape = broadcast(shapes)
        dtype = result_dtype([torch.empty(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)])
        if overload.is_in_place:
            shapes[0], dtypes[0] = shape, dtype
        else:
            shapes.append(draw(st.sampled_from([shape, shape, (0,)])))
            dtypes.append(dtype)
    elif overload.is_out:
        shapes.append(draw(st.sampled_from([(0,), (2, 3), (5,), ()])))
        dtypes.append(draw(st.sampled_from(DTYPES)))
    seed = draw(st.integers(0, 3))
    operands = tuple(
        Operand(
            shape, dtype, draw(st.sampled_from(sorted(MEMORIES))), is_differentiable and draw(st.booleans()), seed + i
        )
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    )
    entry = st.one_of(*(st.sampled_from(sorted(kind)) for kind in (DERIVATIVES, MODES, RELATED)))
    chain = draw(st.lists(entry, max_size=3))
    if overload.is_in_place and draw(st.booleans()):  # a leaf that requires grad may not be overwritten
        chain.insert(draw(st.integers(0, len(chain))), "first: a copy")
    return Call(name, draw(st.booleans()), operands, tuple(chain))


def outcome(function, chain, operands):
    """Call, differentiate what can be differentiated, and look at the memory."""
    tensors, rooms = zip(*(operand.make() for operand in operands), strict=True)
    results, gradients, error = (), (), None
    try:
        results = tuple(tree_leaves(surrounded(function, chain)(*tensors)))
        leaves = [tensor for tensor in tensors if tensor.requires_grad]
        recorded = [result for result in results if result.requires_grad]
        if leaves and recorded:
            gradients = torch.autograd.grad(total(lambda: tuple(recorded))(), leaves, materialize_grads=True)
    except calls.Wrong:
        raise
    except Exception as caught:  # what PyTorch itself cannot do, nobody can
        error = caught
    return Outcome(error, results, gradients, rooms)


def compare(call, chain, plain_chain):
    """What is found in ``chain`` is what is expected in ``plain_chain``, the same one without the compiler."""
    overload = call.overload
    found = outcome(calls.operator(overload, call.is_public), chain, call.operands)
    expected = outcome(calls.reference(overload), plain_chain, call.operands)
    if found.error is not None:
        if expected.error is not None or outcome(calls.torchs(overload), chain, call.operands).error is not None:
            return
        refusal = outcome(calls.documented(overload), plain_chain, call.operands).error
        if not isinstance(refusal, calls.Refused):
            raise found.error
        return
    if expected.error is not None:  # nothing to compare with
        if overload.mutates and not isinstance(expected.error, CheckpointError):
            theirs = outcome(calls.torchs(overload), plain_chain, call.operands)
            assert theirs.error is None, f"PyTorch refuses this: {theirs.error}"
        return
    has_derivatives = any(entry in DERIVATIVES for entry in plain_chain)
    close(found.results, expected.results, call.operands if has_derivatives else ())
    close(found.gradients, expected.gradients, call.operands)
    close(found.rooms, expected.rooms, ())
    if not overload.mutates and chain is plain_chain and all(entry in RELATED for entry in chain):
        theirs = outcome(calls.torchs(overload), chain, call.operands).results
        assert [part.stride() for part in found.results] == [part.stride() for part in theirs]


def close(found, expected, operands):
    """Within a few units in the last place of the narrowest dtype that a value went through."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        unit = max(torch.finfo(dtype).eps for dtype in [theirs.dtype, *(operand.dtype for operand in operands)])
        size = max(1.0, theirs.detach().abs().max().item()) if theirs.numel() else 1.0
        torch.testing.assert_close(mine, theirs, rtol=0, atol=16 * unit * size, equal_nan=True)


COMMON = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "print_blob": True,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=EXAMPLES, **COMMON)
@given(call=drawn_calls())
def test_no_call_is_silently_wrong(call):
    compare(call, call.chain, call.chain)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=COMPILED, **COMMON)
@given(call=drawn_calls(), backend=st.sampled_from(["aot_eager"] * 7 + ["inductor"]), depth=st.integers(0, 3))
def test_no_compiled_call_is_silently_wrong(call, backend, depth):
    compare(call, (*call.chain[:depth], compiled(backend), *call.chain[depth:]), call.chain)
