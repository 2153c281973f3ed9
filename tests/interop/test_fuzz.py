"""Random calls in random surroundings: the operators agree with ATen's, and refuse nothing that those do."""

import os
from random import Random
from typing import NamedTuple

import muladd
import pytest
import torch
from opwheel.dispatch.tensor_iterator import result_dtype
from opwheel_tools.testing.samples import DTYPES
from torch import Tensor
from torch._C._autograd import _saved_tensors_hooks_is_enabled
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointError

from tests.interop.fuzzing import calls
from tests.interop.fuzzing.chains import (
    DERIVATIVES,
    MODES,
    RELATED,
    RELATIONS,
    compiled,
    dtypes_within,
    surrounded,
    total,
)
from tests.interop.fuzzing.operands import MEMORIES, SHAPES, Operand, broadcast

EXAMPLES = int(os.environ.get("TEST_FUZZ_EXAMPLES", "20000"))
COMPILED = int(os.environ.get("TEST_FUZZ_COMPILED", "200"))
SEED = int(os.environ.get("TEST_FUZZ_SEED", "0"))
OVERLOADS = muladd.library.overloads
KINDS = [  # equally often, however few operators have them
    [name for name, overload in OVERLOADS.items() if not overload.mutates],
    [name for name, overload in OVERLOADS.items() if overload.is_out],
    [name for name, overload in OVERLOADS.items() if overload.is_in_place],
]


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


def drawn(random):
    """A call, with targets that fit and chains that make sense most of the time."""
    name = random.choice(random.choice(KINDS))
    overload = OVERLOADS[name]
    shapes = random.sample(random.choice(SHAPES), len(overload.tensor_arguments))
    is_mixed, common = random.random() < 0.5, random.choice(DTYPES)
    dtypes = [random.choice(DTYPES) if is_mixed else common for _ in shapes]
    fits = random.random() < 0.9
    shape = broadcast(shapes)
    dtype = result_dtype([torch.empty(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)])
    if overload.is_in_place and fits:
        shapes[0], dtypes[0] = shape, dtype
    elif overload.is_out:
        shapes.append(random.choice([shape, shape, (0,)] if fits else [(0,), (2, 3), (5,), ()]))
        dtypes.append(dtype if fits else random.choice(DTYPES))
    is_differentiable = random.random() < (0.1 if overload.is_out else 0.5)  # out= refuses it
    operands = tuple(
        Operand(*each, random.choice(list(MEMORIES)), is_differentiable and random.random() < 0.7, random.randrange(9))
        for each in zip(shapes, dtypes, strict=True)
    )
    kinds = [RELATED, MODES, DERIVATIVES][: 2 if overload.is_out and not is_differentiable else 3]
    chain = [random.choice(list(random.choice(kinds))) for _ in range(random.randrange(4))]
    if overload.is_in_place and random.random() < 0.5:  # a leaf that requires grad may not be overwritten
        chain.insert(random.randrange(len(chain) + 1), "first: a copy")
    if "functional wrappers" in chain:  # around torch.func PyTorch's own views of them have wrong gradients
        position = chain.index("functional wrappers")
        chain[:position] = [entry for entry in chain[:position] if entry in RELATED]
    return Call(name, random.random() < 0.5, operands, tuple(chain))


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
    except calls.ContractError:
        raise
    except Exception as caught:  # what PyTorch itself cannot do, nobody can
        error = caught
    # An empty out= that is resized may lie in its memory in another order.
    rooms = (room if all(operand.shape) else room.sort().values for operand, room in zip(operands, rooms, strict=True))
    return Outcome(error, results, gradients, tuple(rooms))


def compare(call, chain, plain_chain):
    """What is found in ``chain`` is what is expected in ``plain_chain``, the same one without the compiler.

    Returns:
        Whether there were results to compare.
    """
    overload = call.overload
    found = outcome(calls.operator(overload, call.is_public), chain, call.operands)
    expected = outcome(calls.reference(overload), plain_chain, call.operands)
    if found.error is not None:
        if expected.error is None and outcome(calls.torchs(overload), chain, call.operands).error is None:
            refusal = outcome(calls.documented(overload), plain_chain, call.operands).error
            if not isinstance(refusal, calls.DocumentedError):
                raise found.error
        return False
    derivatives = [entry for entry in plain_chain if entry in DERIVATIVES]
    if expected.error is not None:  # a chain that PyTorch cannot do, unless it is the target that it refuses
        if overload.mutates and not derivatives and not isinstance(expected.error, CheckpointError):
            theirs = outcome(calls.torchs(overload), plain_chain, call.operands)
            assert theirs.error is None, f"PyTorch refuses this: {theirs.error}"
        return False
    dtypes = dtypes_within(plain_chain, [operand.dtype for operand in call.operands])
    close(found.results, expected.results, dtypes if derivatives else ())
    # PyTorch has no second derivative of what it compiled, and gives zeros for it (pytorch/pytorch#181581).
    if chain is plain_chain or "recorded" not in derivatives:
        close(found.gradients, expected.gradients, dtypes, order=1 + len(derivatives))
    close(found.rooms, expected.rooms, ())
    if not overload.mutates and chain is plain_chain and all(entry in RELATED for entry in chain):
        theirs = outcome(calls.torchs(overload), chain, call.operands).results
        assert [part.stride() for part in found.results] == [part.stride() for part in theirs]
    return True


def close(found, expected, dtypes, order=1):
    """Within a few units in the last place of the narrowest dtype: its own, or one that a value went through.

    Each further order of a derivative rounds again, numbers that may cancel.
    """
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        unit = max(torch.finfo(dtype).eps for dtype in [theirs.dtype, *dtypes])
        size = max(1.0, theirs.detach().abs().max().item()) if theirs.numel() else 1.0
        torch.testing.assert_close(mine, theirs, rtol=0, atol=16 * order * unit * size, equal_nan=True)


def search(count, check):
    """Check so many calls, each made from a number that the error names, and that most of them gave results."""
    compared = 0
    for number in range(SEED, SEED + count):
        random = Random(number)
        call = drawn(random)
        try:
            compared += check(call, random)
        except Exception as error:
            raise AssertionError(f"TEST_FUZZ_SEED={number}: {call}; {_circumstances(call, number, check)}") from error
    assert compared >= count // 3


def _circumstances(call, number, check):
    """What a finding may depend on besides the call: PyTorch's state, and chance."""
    state = f"grad mode {torch.is_grad_enabled()}, saved-tensor hooks {_saved_tensors_hooks_is_enabled()}"
    random = Random(number)
    assert drawn(random) == call
    try:
        check(call, random)
    except Exception as error:
        return f"{state}; fails again: {error}"
    return f"{state}; right when it is repeated"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_with_upper_halves_of_float64_are_exact(dtype):
    """So that one more bit of rounding is a finding where float32 is written into the memory of float64."""

    def values(dtype):
        return torch.cat([Operand((64,), dtype, "own", False, seed).make()[0] for seed in range(9)])

    halves = RELATIONS["its bits"](values(torch.float64))
    assert halves.dtype is torch.float32
    for others in (halves, values(dtype), RELATIONS["its bits"](values(dtype))):
        product = torch.outer(halves, others.float())
        assert torch.equal(product.double(), torch.outer(halves.double(), others.double()))


# Each was said to be wrong and is not.
REINTERPRETED = {
    "float32 into upper halves of float64": Call(
        "fma.out",
        False,
        tuple(Operand((2, 3), torch.float64, "own", False, seed) for seed in (2, 2, 7, 1)),
        ("each: its bits", "first: its first row for all", "functional wrappers"),
    ),
    "a gradient through a narrower dtype": Call(
        "muladd_",
        True,
        (Operand((2, 3), torch.float32, "own", False, 6), Operand((), torch.float32, "own", True, 4)),
        ("first: its bits", "first: a copy"),
    ),
    "an expanded target": Call(
        "muladd_",
        True,
        (Operand((2, 3), torch.float64, "own", False, 8), Operand((2, 1), torch.float64, "own", False, 7)),
        ("each: its bits", "first: its first row for all", "functional wrappers"),
    ),
}


@pytest.mark.parametrize("name", REINTERPRETED)
def test_reinterpreted_bits(name):
    call = REINTERPRETED[name]
    assert compare(call, call.chain, call.chain)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_call_is_silently_wrong():
    search(EXAMPLES, lambda call, _: compare(call, call.chain, call.chain))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_compiled_call_is_silently_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # what an earlier version of a rule led to stays there

    def check(call, random):
        backend = "inductor" if random.random() < 0.1 else "aot_eager"
        depth = random.randrange(len(call.chain) + 1)
        return compare(call, (*call.chain[:depth], compiled(backend), *call.chain[depth:]), call.chain)

    search(COMPILED, check)
