"""Who is measured: muladd, what else computes ``a * b + c``, and the limits of the machine."""

from __future__ import annotations

import functools

import torch
from opwheel.bench import triad
from opwheel.bench.suite import OVERHEAD, Case, Form, Names, Operands, Peer
from torch import Tensor

from . import expressions
from .cases import IN_PLACE, NEW, OUT, SCALE_SHIFT


def _forms(new: str, **others: str) -> dict[Form, str]:
    given = {Form[name.upper()]: statement for name, statement in others.items()}
    backward = f"torch.autograd.grad({new}, (a, b), grad)"
    return {Form.NEW: new, Form.NO_GRAD: new, Form.FORWARD: new, Form.BACKWARD: backward} | given


def _addcmul_setup(case: Case, operands: Operands) -> Names:  # noqa: ARG001  # an interface
    c = operands.inputs["c"]
    return {"c": c if isinstance(c, Tensor) else operands.out.new_tensor(c)}


@functools.lru_cache(maxsize=1)  # two peers use it, one after the other
def _compiled(case: Case) -> Names:
    torch.compiler.reset()  # or each case's static shapes would count against the limit on recompilations
    return {"compiled": expressions.compiled(case.form), "compiled_muladd": expressions.compiled_muladd()}


def _compile_setup(case: Case, operands: Operands) -> Names:
    if operands.out.device.type == "cpu":
        triad.compiler()
    return _compiled(case)


def _custom_setup(case: Case, operands: Operands) -> Names:
    return {"custom": expressions.custom_operator(case.form, tensor_c=isinstance(operands.inputs["c"], Tensor))}


def _ones(case: Case, operands: Operands) -> Names:  # noqa: ARG001  # an interface
    return {"b": torch.ones_like(operands.out)}  # by which a stays what it is, however often it is multiplied


def _triad_setup(case: Case, operands: Operands) -> Names:
    a, b, c = operands.inputs.values()
    return {"triad": triad.prepare(a, b, c, a if case.form is Form.IN_PLACE else operands.out)}


MULADD = Peer(
    "muladd",
    _forms("muladd.muladd(a, b, c)", out="muladd.muladd(a, b, c, out=out)", in_place="muladd.muladd_(a, b, c)"),
)
_OVERHEAD_ONLY = frozenset({OVERHEAD})
OTHERS = (
    Peer("torch.ops", _forms("torch.ops.muladd.muladd.default(a, b, c)"), groups=_OVERHEAD_ONLY),
    Peer("eager", _forms("a * b + c", out="torch.mul(a, b, out=out).add_(c)", in_place="a.mul_(b).add_(c)")),
    Peer(
        "addcmul",
        _forms(
            "torch.addcmul(c, a, b)", out="torch.addcmul(c, a, b, out=out)", in_place="torch.addcmul(c, a, b, out=a)"
        ),
        setup=_addcmul_setup,
    ),
    Peer(
        "mul_",
        {Form.IN_PLACE: "a.mul_(b)"},
        setup=_ones,
        computes=lambda a, b, c: a,  # noqa: ARG005  # by position
        inputs_read=2,
        groups=_OVERHEAD_ONLY,
    ),
    Peer(
        "compile",
        _forms("compiled(a, b, c)", out="compiled(a, b, c, out)", in_place="compiled(a, b, c)"),
        setup=_compile_setup,
    ),
    Peer("muladd in compile", _forms("compiled_muladd(a, b, c)"), setup=_compile_setup, groups=_OVERHEAD_ONLY),
    Peer(
        "custom_op",
        _forms("custom(a, b, c)", out="custom(a, b, c, out)", in_place="custom(a, b, c)"),
        setup=_custom_setup,
    ),
)
TRIAD = Peer(
    "triad",
    {Form.NEW: "triad(torch.empty_like(a))", Form.OUT: "triad(out)", Form.IN_PLACE: "triad(a)"},
    setup=_triad_setup,
    groups=frozenset({NEW, OUT, IN_PLACE}),
    layouts=frozenset({"contiguous"}),
)
COPY = Peer(
    "copy",
    {Form.NEW: "a.clone()", Form.OUT: "out.copy_(a)"},
    computes=lambda a, b, c: a,  # noqa: ARG005  # by position
    inputs_read=1,
    groups=frozenset({NEW, OUT, SCALE_SHIFT}),
)
