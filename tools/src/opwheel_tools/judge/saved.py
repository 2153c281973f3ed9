"""What a backward operator is called with because its forward operator has given it, made anew for each call.

Numbers that no forward operator saves, such as a sum of exponentials that is not that of the scores beside it, say
nothing of a backward operator. A formula of a derivative says what is saved: in ``"tanh_backward(grad, x, y)"``, where
``y`` is a result of the operator that has this derivative, the third argument is that operator's result for ``x``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from opwheel.dispatch.derivatives.expression import Call, Name
from opwheel.dispatch.derivatives.text import parse
from opwheel.dispatch.overload import NON_DIFFERENTIABLE, Overload

from . import calls, declared
from .cases import Case

_FUNCTION = "saved("


class _Saving(NamedTuple):
    """A forward operator and what a backward operator has of it.

    Args:
        forward: the operator.
        arguments: for each of its arguments, the backward operator's.
        results: for arguments of the backward operator that are results of it, which.
    """

    forward: Overload
    arguments: dict[str, str]
    results: dict[str, int]


def with_saved(operator: str, case: Case) -> Case:
    """A call that knows which of its tensors are results of a forward operator, and how the others make them.

    Args:
        operator: that is called; one that no opwheel library declares saves nothing.
        case: the call.
    """
    backward = declared.overload_of(operator)
    saving = next(_savings(backward), None) if backward is not None else None
    if backward is None or saving is None:
        return case
    args, kwargs = calls.decode(case.template, calls.Places())
    of = dict(zip(backward.names, backward.bind(tuple(args), kwargs), strict=True))
    given = ", ".join(calls.text(of[saving.arguments[name]]) for name in saving.forward.names)
    texts = {}
    for name, i in saving.results.items():
        if isinstance(place := of[name], calls.Place):
            pick = f"[{i}]" if len(saving.forward.result_names) > 1 else ""
            texts[place.number] = f"{_FUNCTION}{given}){pick}"
    return case._replace(saved=texts, saving=saving.forward.qualified_name)


def is_saved(expression: str) -> bool:
    """Whether Python that makes a tensor makes a saved one."""
    return _FUNCTION in expression


def made(case: Case) -> Case:
    """The call with its saved tensors, made of the others by the reference of the forward operator.

    It still says which they are: nan in them is none that a caller has given.
    """
    t = list(case.tensors)
    known = {"torch": torch, "nan": math.nan, "t": t}
    for i, expression in case.saved.items():
        known["saved"] = declared.reference_of(case.saving)
        t[i] = eval(expression, known).detach()  # noqa: S307  # written above, and by variants
    return case._replace(tensors=t)


def _savings(backward: Overload) -> Iterator[_Saving]:
    for forward in backward.siblings.values():
        for formula in (forward.operator.derivatives or {}).values():
            if isinstance(formula, str) and formula != NON_DIFFERENTIABLE:
                for call in parse(forward.namespace, formula).calls:
                    yield from _saving_of(call, forward, backward)


def _saving_of(call: Call, forward: Overload, backward: Overload) -> Iterator[_Saving]:
    """What a call in a formula says, where it is one of the backward operator that has all of the forward's arguments.

    Without these, what is saved cannot be made anew.
    """
    if (call.namespace, call.name) != (backward.namespace, backward.operator.name):
        return
    parts = dict(zip([*backward.names[: call.positional], *call.keywords], call.parts, strict=True))
    named = {key: part.name for key, part in parts.items() if isinstance(part, Name)}
    arguments = {name: key for key, name in named.items() if name in forward.names}
    results = {key: forward.result_names.index(name) for key, name in named.items() if name in forward.result_names}
    if results and arguments.keys() == {*forward.names} and not forward.written:
        yield _Saving(forward, arguments, results)
