"""Whether what a formula asks for is there: properties are of tensors, and operators take their arguments."""

import torch

from ..._torch import private
from ..overload import Overload
from ..rules.rule import refuse
from .expression import Call, Name
from .text import PROPERTY_NAMES, TextFormula


def check_properties(overload: Overload, key: str, formula: TextFormula) -> None:
    """Whether those of named tensors are of tensors."""
    kinds = {a.name: str(a.real_type) for a in overload.schema.arguments}
    for one in formula.properties.values():
        kind = "List[Tensor]" if one.name == "grads" else kinds.get(one.name, "Tensor")
        if one.name not in overload.result_names and kind not in ("Tensor", "Optional[Tensor]"):
            problem = f"derivatives[{key!r}]: {one.name!r} is {kind}"
            refuse(overload, problem, f"only a tensor has such properties{formula.marked(one)}")


def check_calls(overload: Overload, key: str, formula: TextFormula, count: int) -> None:
    """Whether there are such operators that take the arguments, write nothing and give the results.

    Operators of libraries other than PyTorch and this one may be defined later.
    """
    for call in formula.calls:
        if call.is_own:
            _check_own_call(overload, key, formula, call, count)
        elif call.namespace == "aten":
            _check_aten_call(overload, key, formula, call)


def _check_own_call(overload: Overload, key: str, formula: TextFormula, call: Call, count: int) -> None:
    place = formula.marked(call)
    missing = [name for name in (call.name, call.in_place) if name and not overload.has_sibling(name)]
    if missing:
        way_out = f"which must be operators of the library, as PyTorch's are aten::{missing[0]}{place}"
        refuse(overload, f"derivatives[{key!r}] calls {missing}", way_out)
    if call.in_place:
        _check_in_place(overload, key, formula, call)
    sibling = overload.sibling(call.name)
    if sibling is None:  # of an earlier registration
        return
    way_out = f"its schema is {sibling.schema_text}{place}"
    if not call.fits(sibling.schema):
        refuse(overload, f"derivatives[{key!r}]: {call.name} does not take these arguments", way_out)
    if sibling.mutates:
        refuse(overload, f"derivatives[{key!r}]: {call.name} overwrites an argument", way_out)
    results = len(sibling.schema.returns)
    if call is formula.expression and results != count:
        problem = f"{call.name} has {results} result{'s' * (results != 1)}, the key takes {count}"
        refuse(overload, f"derivatives[{key!r}]: {problem}", f"name as many tensors, or give a function{place}")


def _check_in_place(overload: Overload, key: str, formula: TextFormula, call: Call) -> None:
    """Whether the variant is one, and what it may overwrite is a result that is kept for this formula."""
    place = formula.marked(call)
    target = call.parts[0] if call.positional else None
    name = target.name if isinstance(target, Name) else ""
    if name not in overload.without_gradient.intersection(overload.result_names) or overload.mutates:
        problem = f"derivatives[{key!r}]: {call.in_place} overwrites its first argument"
        refuse(overload, problem, f"it has to be a result in not_differentiable of a functional operator{place}")
    if call is not formula.expression:
        way_out = f"only a formula that is nothing else may overwrite{place}"
        refuse(overload, f"derivatives[{key!r}]: {call.in_place} is a part of a formula", way_out)
    functional, variant = overload.sibling(call.name), overload.sibling(call.in_place)
    if functional is None or variant is None:  # of an earlier registration
        return
    arguments, others = ([(a.name, str(a.real_type)) for a in one.schema.arguments] for one in (functional, variant))
    if arguments != others or len(functional.schema.returns) != 1 or variant.written != (0,) or variant.schema.returns:
        problem = f"derivatives[{key!r}]: {call.in_place} is not {call.name} in place"
        way_out = f"their schemas are {functional.schema_text} and {variant.schema_text}{place}"
        refuse(overload, problem, way_out)


def _check_aten_call(overload: Overload, key: str, formula: TextFormula, call: Call) -> None:
    place = formula.marked(call)
    packet = getattr(torch.ops.aten, call.name, None)
    if packet is None:
        known = ", ".join([*PROPERTY_NAMES, "conj"])
        way_out = f"PyTorch has no such operator; methods that are none: {known}{place}"
        refuse(overload, f"derivatives[{key!r}] calls aten::{call.name}", way_out)
    schemas = [private.schema(getattr(packet, one)) for one in packet.overloads()]
    functional = [schema for schema in schemas if not schema.is_mutable]
    if not functional:
        way_out = f"a formula must not write: its tensors are those of the program{place}"
        refuse(overload, f"derivatives[{key!r}]: aten::{call.name} overwrites an argument", way_out)
    if not any(call.fits(schema) for schema in functional):
        there_are = "\n    ".join(map(str, functional))
        way_out = f"there are\n    {there_are}{place}"
        refuse(overload, f"derivatives[{key!r}]: aten::{call.name} does not take these arguments", way_out)
