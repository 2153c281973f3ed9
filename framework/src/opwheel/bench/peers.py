"""Who is measured. A peer is, for each form of a call, the statement that a user would write, timed as it stands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import expressions, triad
from .cases import Case, Form, Group
from .operands import Operands

Names = Mapping[str, object]


def _multiply_add(a: Tensor, b: Tensor, c: float | Tensor) -> Tensor:
    return a * b + c


def _first(a: Tensor, b: Tensor, c: float | Tensor) -> Tensor:  # noqa: ARG001  # an interface
    return a


def _nothing(case: Case, operands: Operands) -> Names:  # noqa: ARG001  # an interface
    return {}


@dataclass(frozen=True)
class Peer:
    """One way to compute ``a * b + c``."""

    name: str
    statements: Mapping[Form, str]
    setup: Callable[[Case, Operands], Names] = _nothing
    """What the statements use beside ``torch``, ``muladd`` and the operands."""
    computes: Callable[[Tensor, Tensor, float | Tensor], Tensor] = _multiply_add
    inputs_read: int = 3
    """How many of a, b and c it moves."""
    groups: frozenset[Group] = field(default_factory=lambda: frozenset(Group))
    layouts: frozenset[str] | None = None
    """None: any."""

    def statement(self, case: Case) -> str | None:
        """What is timed; None where the peer has no part in the case."""
        if case.group not in self.groups or (self.layouts is not None and case.layout not in self.layouts):
            return None
        return self.statements.get(case.form)

    def bytes(self, case: Case, operands: Operands) -> int:
        """What has to move between memory and processor, each tensor once in every pass that needs it."""
        given = (operands.a, operands.b, operands.c)[: self.inputs_read]
        tensors = [value for value in given if isinstance(value, Tensor)]
        moved = sum(tensor.numel() for tensor in tensors) + operands.out.numel()
        if case.form is Form.BACKWARD:
            moved += operands.out.numel() + 2 * (operands.a.numel() + operands.b.numel())
        return moved * case.dtype.itemsize


def _forms(new: str, **others: str) -> dict[Form, str]:
    given = {Form[name.upper()]: statement for name, statement in others.items()}
    return {Form.NEW: new, Form.NO_GRAD: new, Form.BACKWARD: f"torch.autograd.grad({new}, (a, b), grad)"} | given


def _addcmul_setup(case: Case, operands: Operands) -> Names:  # noqa: ARG001  # an interface
    return {"c": operands.addend}


@functools.lru_cache(maxsize=1)  # two peers use it, one after the other
def _compiled(case: Case) -> Names:
    torch.compiler.reset()  # or each case's static shapes would count against the limit on recompilations
    return {"compiled": expressions.compiled(case.form), "compiled_muladd": expressions.compiled_muladd()}


def _compile_setup(case: Case, operands: Operands) -> Names:
    if operands.a.device.type == "cpu":
        triad.compiler()
    return _compiled(case)


def _custom_setup(case: Case, operands: Operands) -> Names:
    return {"custom": expressions.custom_operator(case.form, tensor_c=isinstance(operands.c, Tensor))}


def _triad_setup(case: Case, operands: Operands) -> Names:
    assert isinstance(operands.c, float)
    target = operands.a if case.form is Form.IN_PLACE else operands.out
    return {"triad": triad.prepare(operands.a, operands.b, operands.c, target)}


MULADD = Peer(
    "muladd",
    _forms("muladd.muladd(a, b, c)", out="muladd.muladd(a, b, c, out=out)", in_place="muladd.muladd_(a, b, c)"),
)
_OVERHEAD_ONLY = frozenset({Group.OVERHEAD})
_COMPUTING = (
    Peer("torch.ops", _forms("torch.ops.muladd.muladd(a, b, c)"), groups=_OVERHEAD_ONLY),
    Peer("eager", _forms("a * b + c", out="torch.mul(a, b, out=out).add_(c)", in_place="a.mul_(b).add_(c)")),
    Peer(
        "addcmul",
        _forms(
            "torch.addcmul(c, a, b)", out="torch.addcmul(c, a, b, out=out)", in_place="torch.addcmul(c, a, b, out=a)"
        ),
        setup=_addcmul_setup,
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
_FLAT = frozenset({"contiguous"})
_TRIAD = Peer(
    "triad",
    {Form.NEW: "triad(torch.empty_like(a))", Form.OUT: "triad(out)", Form.IN_PLACE: "triad(a)"},
    setup=_triad_setup,
    groups=frozenset({Group.NEW, Group.OUT, Group.IN_PLACE}),
    layouts=_FLAT,
)
_COPY = Peer(
    "copy",
    {Form.NEW: "a.clone()", Form.OUT: "out.copy_(a)"},
    computes=_first,
    inputs_read=1,
    groups=frozenset({Group.NEW, Group.OUT, Group.SCALE_SHIFT}),
)
LIMITS = frozenset({_TRIAD.name, _COPY.name})
NAMES = tuple(peer.name for peer in (*_COMPUTING, _TRIAD, _COPY))


def select(device: str, skip: list[str]) -> list[Peer]:
    """Who takes part on the device: muladd first, the limit last."""
    limit = _TRIAD if device == "cpu" else _COPY
    return [MULADD, *(peer for peer in (*_COMPUTING, limit) if peer.name not in skip)]
