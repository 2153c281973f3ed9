"""A program in which opwheel does not find one private name of PyTorch: which parts of muladd work, as JSON.

python hidden_name.py NAME PART ...
"""

import json
import sys
import warnings

HIDDEN, *PARTS = sys.argv[1:]


def hide():
    from opwheel._torch import names

    resolve = names._resolve

    def without_it(path):
        if path == HIDDEN:
            raise AttributeError(path)
        return resolve(path)

    names._resolve = without_it


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
    def function(a):
        return muladd.muladd(muladd.muladd_(a * 1, a, 1.0), a, 0.0)

    return torch.equal(torch.compile(function, backend="aot_eager", fullgraph=True)(x), torch.full((3,), 2.0))


def named():
    from opwheel._torch.names import missing

    return [name.path for name in missing()] == [HIDDEN]


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch

    hide()
    try:
        import muladd

        x = torch.ones(3)
        parts = {}
        for part in PARTS:
            try:
                parts[part] = "right" if globals()[part]() else "WRONG"
            except Exception as error:
                parts[part] = f"{type(error).__name__}: {error}"
    except Exception as error:
        parts = {"import": f"{type(error).__name__}: {error}"}
said = [str(one.message) for one in caught if str(one.message).startswith("opwheel: PyTorch")]
print(json.dumps({"parts": parts, "said": said}))
