"""Hides private names of PyTorch from opwheel, one in each child process, and says what of muladd works then.

    python hidden_names.py NAME ...     # "-": none

For each name a line of JSON: ``parts``, with "right", "wrong" or the error of each, and ``said``, the warnings.
PyTorch is imported once, with all that the parts need, and each child is forked from there.
"""

import json
import os
import sys
import warnings

import torch
import torch._dynamo
import torch._functorch.vmap
import torch._inductor.compile_fx


def eager():
    out = torch.empty(3)
    return muladd.muladd(x, x, 2.0, out=out) is out and torch.equal(muladd.muladd(x, x, 2.0), torch.full((3,), 3.0))


def gradients():
    leaf = torch.ones(3, requires_grad=True)
    (first,) = torch.autograd.grad(muladd.muladd(leaf, leaf, 2.0).sum(), leaf, create_graph=True)
    first.sum().backward()
    return torch.equal(first, torch.full((3,), 2.0)) and torch.equal(leaf.grad, torch.full((3,), 2.0))


def in_place():
    leaf = torch.ones(3, requires_grad=True)
    base = leaf * 1
    muladd.muladd_(base[1:], x[1:], 2.0)
    base.sum().backward()
    return torch.equal(base.detach(), torch.tensor([1.0, 3, 3])) and torch.equal(leaf.grad, x)


def transforms():
    jacobian = torch.func.vmap(torch.func.grad(lambda v: muladd.mul(v, v).sum()))(torch.ones(2, 3))
    tangent = torch.func.jvp(lambda v: muladd.mul(v, v), (x,), (x,))[1]
    return torch.equal(jacobian, torch.full((2, 3), 2.0)) and torch.equal(tangent, torch.full((3,), 2.0))


def autocast():
    with torch.autocast("cpu", torch.bfloat16):
        return muladd.add(x, x.bfloat16()).dtype is torch.float32


def fake():
    return muladd.muladd(torch.empty(3, device="meta"), torch.empty(3, device="meta"), 1.0).shape == (3,)


def compiled():
    function = torch.compile(lambda a: muladd.muladd(a, a, 1.0), backend="aot_eager", fullgraph=True)
    return torch.equal(function(x), torch.full((3,), 2.0))


def compiled_in_place():
    function = torch.compile(lambda a: muladd.muladd_(a * 1, a, 1.0), backend="aot_eager", fullgraph=True)
    return torch.equal(function(x), torch.full((3,), 2.0))


PARTS = (eager, gradients, in_place, transforms, autocast, fake, compiled, compiled_in_place)


def hide(hidden):
    from opwheel._torch import lookup

    resolve = lookup._resolve

    def without_it(path):
        if path == hidden:
            raise AttributeError(path)
        return resolve(path)

    lookup._resolve = without_it


def outcome(part):
    try:
        return "right" if part() else "wrong"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def report(hidden):
    global muladd, x
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hide(hidden)
        x = torch.ones(3)
        try:
            import muladd
        except Exception as error:
            parts = {"import": f"{type(error).__name__}: {error}"}
        else:
            parts = {part.__name__: outcome(part) for part in PARTS}
    said = [str(one.message) for one in caught if str(one.message).startswith("opwheel: PyTorch")]
    return {"name": hidden, "parts": parts, "said": said}


for hidden in sys.argv[1:]:
    child = os.fork()
    if not child:
        print(json.dumps(report(hidden)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
