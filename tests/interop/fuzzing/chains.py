"""What surrounds a call: functions from a function of tensors to another one.

A chain is a list of their names, the innermost first.
"""

from __future__ import annotations

import torch
from opwheel_tools.testing.reference import as_tuple
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils.checkpoint import checkpoint


def total(function):
    """A scalar that depends on every element, and on none of them linearly."""
    return lambda *tensors: torch.stack([part.double().pow(2).sum() for part in as_tuple(function(*tensors))]).sum()


def recorded(function):
    """The gradient by .backward()'s engine, itself differentiable."""

    def call(*tensors):
        with torch.enable_grad():
            leaves = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in tensors]
            return torch.autograd.grad(total(function)(*leaves), leaves, create_graph=True)

    return call


def recorded_with_copies(function):
    """Autograd keeps copies of overwritten tensors, through the backward pass."""

    def call(*tensors):
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            return tuple(gradient.detach() for gradient in recorded(function)(*tensors))

    return call


def saved_as_copies(function):
    """A hook replaces what is kept for backward by a copy of what it is at that moment."""

    def call(*tensors):
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.detach().clone(), lambda copied: copied):
            return function(*tensors)

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


def is_plain(tensor):
    """Whether no transformation has wrapped it."""
    return not is_functorch_wrapped_tensor(tensor) and not torch._is_functional_tensor(tensor)


def _unwrapped(tensor):
    if torch._is_functional_tensor(tensor):  # else it is a constant
        torch._sync(tensor)
        tensor = torch._from_functional_tensor(tensor)
    return tensor.detach()


def wrapped(function):
    """Functionalization without a transform around it: its wrappers as arguments."""

    def call(*tensors):
        if not all(map(is_plain, tensors)):
            raise NotImplementedError("PyTorch crashes on such wrappers around wrappers")
        wrappers = {id(tensor): torch._to_functional_tensor(tensor.detach()) for tensor in tensors}
        results = as_tuple(function(*(wrappers[id(tensor)] for tensor in tensors)))
        return tuple(map(_unwrapped, (*results, *wrappers.values())))

    return call


def inferring(function):
    def call(*tensors):
        if not all(map(is_plain, tensors)):
            raise NotImplementedError("PyTorch makes no views of wrapped tensors in inference mode")
        with torch.inference_mode():
            return function(*tensors)

    return call


def overlapping(function):
    """The others are the first tensor's memory, one element further."""

    def call(first, *rest):
        wide = torch.cat([first.flatten(), first.flatten()[:1]])
        count = first.numel()
        return function(wide[:count].view(first.shape), *[wide[-count:].view(first.shape) for _ in rest])

    return call


def _unrecorded(tensor):
    with torch.no_grad():
        return tensor.view_as(tensor)


def _moved(tensor):
    return torch.cat([tensor.new_zeros(3), tensor.flatten()])[3:].view(tensor.shape)


# The dtype that _bits reads another one as.
_BITS = {
    torch.float64: torch.float32,
    torch.float32: torch.bfloat16,
    torch.float16: torch.bfloat16,
    torch.bfloat16: torch.float16,
}


def _bits(tensor):
    """Its bytes as floating-point numbers of another dtype, of the same shape: the upper halves, or all of 16 bits."""
    dtype = _BITS[tensor.dtype]
    if dtype.itemsize == tensor.itemsize:
        return tensor.detach().view(dtype)
    return tensor.detach().unsqueeze(-1).view(dtype)[..., 1]


# One tensor from another, most of them in the same memory.
RELATIONS = {
    "itself": lambda x: x,
    "a view": lambda x: x.view_as(x),
    "detached": lambda x: x.detach(),
    "a view under no_grad": _unrecorded,
    "its first column": lambda x: x[..., :1] if x.dim() else x,
    "its first row": lambda x: x[:1] if x.dim() else x,
    "its first row for all": lambda x: x[:1].expand_as(x) if x.dim() and len(x) else x,
    "transposed": lambda x: x.transpose(0, -1) if x.dim() > 1 and x.shape[0] == x.shape[-1] else x,
    "one of unbind": lambda x: torch.stack([x, x]).unbind()[1],
    "a copy": lambda x: x.clone(),
    "a copy with an offset": _moved,
    "a copy with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
    "its bits": _bits,
    "an empty part": lambda x: x.flatten()[:0],
}

RELATED = {
    f"{which} {name}": place(relation)
    for name, relation in RELATIONS.items()
    for which, place in {
        "first:": lambda relation: lambda f: lambda first, *rest: f(relation(first), *rest),
        "others:": lambda relation: lambda f: lambda first, *rest: f(first, *[relation(first) for _ in rest]),
        "last:": lambda relation: lambda f: lambda first, *rest: f(first, *rest[:-1], *[relation(first)] * bool(rest)),
        "each:": lambda relation: lambda f: lambda *tensors: f(*map(relation, tensors)),
    }.items()
}
RELATED["others: overlapping"] = overlapping

BITS = [name for name in RELATED if name.endswith(": its bits")]

DERIVATIVES = {
    "recorded": recorded,
    "recorded with copies": recorded_with_copies,
    "grad": lambda f: torch.func.grad(total(f)),
    "grad of the last": lambda f: lambda *t: torch.func.grad(total(f), argnums=len(t) - 1)(*t),
    "jvp": tangent,
    "vjp": pulled_back,
    "jacrev": lambda f: torch.func.jacrev(total(f)),
    "jacfwd": lambda f: torch.func.jacfwd(total(f)),
}

MODES = {
    "vmap": batched,
    "vmap at the end": batched_at_the_end,
    "functionalize": torch.func.functionalize,
    "functional wrappers": wrapped,
    "checkpoint": lambda f: lambda *t: checkpoint(f, *t, use_reentrant=False),
    "saved as copies": saved_as_copies,
    "no grad": lambda f: torch.no_grad()(f),
    "inference mode": inferring,
}

TRANSFORMS = RELATED | DERIVATIVES | MODES


def compiled(backend):
    """torch.compile, afresh."""

    def transform(function):
        torch._dynamo.reset()
        return torch.compile(function, backend=backend)

    return transform


def dtypes_within(chain, dtypes):
    """All dtypes that tensors of these ones have somewhere in the chain."""
    found = set(dtypes)
    for entry in chain:
        if entry in BITS:
            found |= {_BITS[dtype] for dtype in found}
    return found


def surrounded(function, chain):
    """The function in its chain; an entry is a name or a transformation."""
    for entry in chain:
        function = TRANSFORMS.get(entry, entry)(function)
    return function
