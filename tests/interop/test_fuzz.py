"""Random compositions of transformations around every operator agree with the ATen decomposition."""

import os

import muladd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opwheel.dispatch.elementwise import decompose
from opwheel.testing.reference import as_tuple
from opwheel.testing.samples import numbers
from torch.utils.checkpoint import checkpoint

EXAMPLES = int(os.environ.get("MULADD_FUZZ_EXAMPLES", "20000"))
OVERLOADS = {name: overload for name, overload in muladd.library.overloads.items() if not overload.is_out}


def total(function):
    """A scalar that depends on every element, and on none of them linearly."""
    return lambda *tensors: torch.stack([part.pow(2).sum() for part in as_tuple(function(*tensors))]).sum()


def recorded(function):
    """The gradient by .backward()'s engine, itself differentiable."""

    def call(*tensors):
        with torch.enable_grad():
            leaves = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in tensors]
            return torch.autograd.grad(total(function)(*leaves), leaves, create_graph=True)

    return call


def batched(function):
    """vmap over a new leading dimension of the first tensor; the others are shared."""

    def call(first, *rest):
        dims = (0, *[None] * len(rest))
        return torch.vmap(function, in_dims=dims)(torch.stack([first, first * 0.5]), *rest)

    return call


def batched_at_the_end(function):
    """vmap over a new last dimension of every tensor."""
    return lambda *tensors: torch.vmap(function, in_dims=-1)(*(torch.stack([t, t + 1], -1) for t in tensors))


def tangent(function):
    return lambda *tensors: torch.func.jvp(total(function), tensors, tuple(map(torch.ones_like, tensors)))[1]


def pulled_back(function):
    def call(*tensors):
        output, pullback = torch.func.vjp(total(function), *tensors)
        return pullback(torch.ones_like(output))

    return call


TRANSFORMS = {
    "recorded": recorded,
    "grad": lambda f: torch.func.grad(total(f)),
    "grad of the last": lambda f: lambda *t: torch.func.grad(total(f), argnums=len(t) - 1)(*t),
    "jvp": tangent,
    "vjp": pulled_back,
    "jacrev": lambda f: torch.func.jacrev(total(f)),
    "jacfwd": lambda f: torch.func.jacfwd(total(f)),
    "vmap": batched,
    "vmap at the end": batched_at_the_end,
    "functionalize": torch.func.functionalize,
    "checkpoint": lambda f: lambda *t: checkpoint(f, *t, use_reentrant=False),
    "same tensor": lambda f: lambda first, *rest: f(first, *[first] * len(rest)),
    "transposed": lambda f: lambda *t: f(*(x.transpose(0, -1) if x.dim() > 1 else x for x in t)),
    "stepped": lambda f: lambda *t: f(*(torch.stack([x, x], -1)[..., 0] for x in t)),
    "no grad": lambda f: torch.no_grad()(f),
}


def call_of(overload, use_decomposition):
    """The operator as a function of its tensors alone."""

    def call(*tensors):
        given = iter(tensors)
        args = [next(given) if name in overload.tensor_arguments else 1.5 for name in overload.arguments]
        if use_decomposition:
            return decompose(overload, tuple(args))
        if overload.is_in_place:
            args[0] = args[0].clone()
        return overload.op(*args)

    return call


# What PyTorch's own operators do in place.
IN_PLACE_IN_ATEN = {"muladd_": lambda a, b: a.clone().mul_(b).add_(1.5)}


def outcome(function, names, tensors):
    for name in names:
        function = TRANSFORMS[name](function)
    try:
        return as_tuple(function(*tensors))
    except Exception as error:  # what PyTorch itself cannot do, nobody can
        return f"{type(error).__name__}: {error}"


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(
    name=st.sampled_from(sorted(OVERLOADS)),
    transforms=st.lists(st.sampled_from(sorted(TRANSFORMS)), min_size=1, max_size=3),
    shapes=st.sampled_from([[(2, 3)] * 3, [(2, 3), (3,), (2, 1)], [(3,)] * 3, [(2, 3), (), (1, 3)], [()] * 3]),
    seed=st.integers(0, 3),
)
def test_no_composition_is_silently_wrong(name, transforms, shapes, seed):
    overload = OVERLOADS[name]
    count = len(overload.tensor_arguments)
    tensors = [numbers(shape, torch.float64, seed + i) for i, shape in enumerate(shapes[:count])]
    if overload.is_in_place and any(t.shape != tensors[0].shape for t in tensors):
        tensors = [numbers(shapes[0], torch.float64, seed + i) for i in range(count)]
    expected = outcome(call_of(overload, True), transforms, tensors)
    found = outcome(call_of(overload, False), transforms, tensors)
    if isinstance(expected, str):
        return  # the reference cannot do it either: an error, or a result, but nothing to compare with
    in_place = IN_PLACE_IN_ATEN.get(name)
    if isinstance(found, str) and in_place and isinstance(outcome(in_place, transforms, tensors), str):
        return  # nor can PyTorch's own in-place operators
    assert not isinstance(found, str), f"{name} under {transforms}: {found}"
    torch.testing.assert_close(found, expected)
