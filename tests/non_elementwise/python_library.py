"""Libraries with operators of every rule, whose kernels for the CPU are functions in Python."""

import itertools
from types import SimpleNamespace

import torch
from opwheel.dispatch import Elementwise, Operator, Rows, implement_functions, overloads_of
from opwheel_tools import OpInfo, Sample

from .declared import declare

_kept = []  # registrations last as long as these
_names = (f"waves_backend_{number}" for number in itertools.count())


def rows(device, dtype, requires_grad):
    yield Sample(torch.randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad))


SCHEMAS = (
    "softmax(Tensor x) -> Tensor",
    "blend(Tensor x, Tensor y, float t) -> Tensor",
    "blend_(Tensor(a!) x, Tensor y, float t) -> Tensor(a!)",
    "fill(Tensor(a!) x, float t) -> ()",
)


def softmax(x):
    return torch.softmax(x, -1)


def blend(x, y, t):
    return x + t * (y - x)


def fill(x, t):
    x.fill_(t)


def absent(x):
    raise ImportError("no such package")


BASELINES = {
    "by hand": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "wrong": lambda x: torch.softmax(x, 0),
    "two": lambda x: (x, x),
    "absent": absent,
}
OPERATORS = (
    Operator("softmax", reference=softmax, rule=Rows(x=1)),
    Operator("blend", reference=blend, rule=Elementwise()),
    Operator("fill", reference=fill, derivatives=None),
)
OP_INFOS = {"softmax": OpInfo(samples=rows, baselines=BASELINES)}


def library(infos=OP_INFOS, **functions):
    """A library with a backend for the CPU that has these functions."""
    namespace = next(_names)
    definitions = torch.library.Library(namespace, "DEF")
    for schema in SCHEMAS:
        definitions.define(schema)
    declare(namespace, SCHEMAS, OPERATORS, infos)
    target = torch.library.Library(namespace, "IMPL", "CPU")
    implement_functions(target, overloads_of(target).values(), "cpu", functions)
    _kept.extend((definitions, target))
    return SimpleNamespace(ops=getattr(torch.ops, namespace), namespace=namespace, overloads=overloads_of(target))
