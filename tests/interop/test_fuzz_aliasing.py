"""Random programs that overwrite a tensor while their other argument lies over it, and then differentiate."""

import os
from contextlib import nullcontext

import muladd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opwheel_tools.testing.samples import numbers
from torch.autograd.graph import allow_mutation_on_saved_tensors, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

EXAMPLES = int(os.environ.get("TEST_FUZZ_EXAMPLES", "20000"))
COMPILED = int(os.environ.get("TEST_FUZZ_COMPILED", "200"))


def under_no_grad(view):
    def call(tensor):
        with torch.no_grad():
            return view(tensor)

    return call


# Parts of a tensor, and other tensors over the same memory.
PARTS = {
    "itself": lambda x: x,
    "view": lambda x: x.view_as(x),
    "transposed": lambda x: x.mT if x.dim() > 1 else x,
    "rows": lambda x: x[1:3],
    "first row": lambda x: x[:1],
    "row": lambda x: x[0],
    "column": lambda x: x[..., :1],
    "columns": lambda x: x[..., 1:3],
    "stepped": lambda x: x[::2],
    "diagonal": lambda x: x.diagonal() if x.dim() > 1 else x,
    "strided": lambda x: x.as_strided(x.shape, x.stride()),
    "expanded": lambda x: x[..., :1].expand_as(x),
    "one of several": lambda x: x.unbind(0)[0],
    "without grad": under_no_grad(lambda x: x[:]),
}
APART = {
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "numpy": lambda x: torch.from_numpy(x.detach().numpy()),
    "storage": lambda x: x.new_empty(0).set_(x.detach().untyped_storage(), x.storage_offset(), x.shape, x.stride()),
}
PART, ANY = st.sampled_from(sorted(PARTS)), st.sampled_from(sorted({**PARTS, **APART}))

PROGRAMS = st.fixed_dictionaries(
    {
        "is_leaf": st.booleans(),
        "target": st.lists(PART, max_size=2),
        "source": st.sampled_from(["base", "target", "another"]),
        "argument": st.lists(ANY, max_size=2),
        "again": st.sampled_from([None, "base", "target"]),
    }
)


def program(operator, is_leaf, target, source, argument, again):
    """A function of two tensors that overwrites a part of the first, and returns what it then is."""

    def call(first, second):
        base = first if is_leaf else first * 1.0
        part, other = base, second
        for name in target:
            part = PARTS[name](part)
        if source != "another":
            other = base if source == "base" else part
        for name in argument:
            other = {**PARTS, **APART}[name](other)
        overwrite(operator, base, part, other)
        if again:
            overwrite(operator, base, base if again == "base" else part, second[0, 0])
        return (base * base).sum() + (part * 0.5).sum() + second.sum()

    return call


def overwrite(operator, base, target, other):
    """Refused calls leave everything as it was."""
    before = base.detach().clone()
    try:
        operator(target, other)
    except Exception:
        if not torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling():
            assert torch.equal(base, before), "refused, but something was overwritten"
        raise


def mine(target, other):
    muladd.muladd_(target, other, 1.5)


def theirs(target, other):
    """PyTorch's own, from copies: nothing that a gradient needs is overwritten."""
    target.copy_(target.clone() * other.clone() + 1.5)


def in_place(target, other):
    target.mul_(other).add_(1.5)


def leaves(wanted):
    return [numbers((4, 4), torch.float64, seed).requires_grad_(is_wanted) for seed, is_wanted in enumerate(wanted)]


def derivatives(function, tensors, *, order=1):
    """The result and its first or second derivatives."""
    wanted = [tensor for tensor in tensors if tensor.requires_grad]  # a tensor that is overwritten may become one
    result = function(*tensors)
    values = [result.detach()]
    for _ in range(order):
        if not (wanted and result.requires_grad):
            break
        found = torch.autograd.grad(result, wanted, create_graph=order > 1, allow_unused=True, materialize_grads=True)
        values += [gradient.detach() for gradient in found]
        result = torch.stack([gradient.pow(2).sum() for gradient in found]).sum()
    return values


def both_ways(function, tensors):
    plain = [tensor.detach() for tensor in tensors]
    tangents = tuple(tensor + 1 for tensor in plain)
    return [*torch.func.jvp(function, tuple(plain), tangents), *torch.func.grad(function, argnums=(0, 1))(*plain)]


WAYS = {
    "once": lambda f, t: derivatives(f, t),
    "twice": lambda f, t: derivatives(f, t, order=2),
    "checkpoint": lambda f, t: derivatives(lambda *a: checkpoint(f, *a, use_reentrant=False), t),
    "torch.func": both_ways,
    "batched": lambda f, t: torch.vmap(torch.func.grad(f))(*(torch.stack([x.detach(), x.detach() + 1]) for x in t)),
}
CONTEXTS = {
    "plain": nullcontext,
    "saved tensors hooks": lambda: saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor),
    "allowed mutation": allow_mutation_on_saved_tensors,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
}


def outcome(way, function, tensors):
    try:
        return way(function, tensors)
    except AssertionError:
        raise
    except Exception as error:  # what is refused is compared, too
        return f"{type(error).__name__}: {error}"


def compare(found, expected, plain):
    """Like PyTorch from copies; or an error where PyTorch has one, from copies or in place.

    In place PyTorch does not notice that another library's tensor is over a part of the target.
    """
    if isinstance(expected, str):
        assert isinstance(found, str), f"PyTorch says {expected}"
    elif isinstance(found, str):
        assert isinstance(plain, str) or "share memory" in found, found
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
@given(
    described=PROGRAMS,
    way=st.sampled_from(sorted(WAYS)),
    context=st.sampled_from(sorted(CONTEXTS)),
    wanted=st.tuples(st.booleans(), st.booleans()),
)
def test_no_aliased_argument_gives_a_wrong_gradient(described, way, context, wanted):
    def run(operator):
        tensors = leaves(wanted)
        with CONTEXTS[context]():
            return outcome(WAYS[way], program(operator, **described), tensors)

    compare(run(mine), run(theirs), run(in_place))


@pytest.mark.slow
@settings(max_examples=COMPILED, suppress_health_check=list(HealthCheck), database=None)
@given(described=PROGRAMS, wanted=st.tuples(st.booleans(), st.booleans()))
def test_nor_does_one_in_a_compiled_program(described, wanted):
    def run(operator, compiler):
        torch._dynamo.reset()
        function = torch.compile(program(operator, **described), backend=compiler) if compiler else None
        return outcome(WAYS["once"], function or program(operator, **described), leaves(wanted))

    compare(run(mine, "aot_eager"), run(theirs, None), run(in_place, "aot_eager"))
