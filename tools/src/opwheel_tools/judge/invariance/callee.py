"""A candidate with names for its arguments and results, by which claims speak of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from opwheel._torch import private
from torch import Tensor

from ...invariance.bits import differing
from ...invariance.subject import Subject
from .. import calls
from ..cases import Case
from ..subjects import PACKET, SubjectError

_OPERATOR = type(torch.ops.aten.add.Tensor)


def with_names(thing: Any, function: Callable[..., Any], case: Case) -> tuple[Subject, dict[str, Any]]:
    """A candidate as a function of named arguments, and those of a call.

    Args:
        thing: what is judged, as :func:`opwheel_tools.judge.subjects.make` takes it.
        function: what that made of it.
        case: a call of it.

    Raises:
        SubjectError: its arguments have no names, it raises, or it returns something else than tensors.
    """
    args, kwargs = calls.decode(case.template, case.tensors)
    signature = _signature(thing, args, kwargs)
    try:
        arguments = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise SubjectError(f"the given call does not fit {signature}: {error}") from None

    def call(**given: Any) -> Any:
        bound = signature.bind_partial()
        bound.arguments.update((name, given[name]) for name in signature.parameters if name in given)
        returned = function(*bound.args, **bound.kwargs)
        return tuple(returned) if isinstance(returned, list) else returned

    return _described(call, arguments), arguments


def _signature(thing: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.Signature:
    if isinstance(thing, PACKET):
        thing = _overload(thing, args, kwargs)
    if isinstance(thing, _OPERATOR):
        return _of_schema(private.schema(thing))
    if isinstance(thing, type) and issubclass(thing, torch.autograd.Function):
        return _without_first(thing.forward) if not _sets_up(thing) else inspect.signature(thing.forward)
    if isinstance(thing, type) and issubclass(thing, torch.nn.Module):
        return _without_first(thing.forward)
    try:
        signature = inspect.signature(thing.forward if isinstance(thing, torch.nn.Module) else thing)
    except (TypeError, ValueError):
        raise SubjectError("its arguments have no names; wrap it in a function that gives them some") from None
    if any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values()):
        raise SubjectError(f"its arguments {signature} have no names; wrap it in a function that gives them some")
    return signature


def _overload(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The overload that takes the call."""
    for name in packet.overloads():
        found = getattr(packet, name)
        try:
            _of_schema(private.schema(found)).bind(*args, **kwargs)
            found(*args, **kwargs)
        except (TypeError, RuntimeError):
            continue
        return found
    raise SubjectError(f"no overload of {packet} takes the given call")


def _of_schema(schema: Any) -> inspect.Signature:
    keyword, other = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(
            one.name,
            keyword if one.kwarg_only else other,
            default=one.default_value if one.has_default_value() else inspect.Parameter.empty,
        )
        for one in schema.arguments
    ]
    return inspect.Signature(parameters)


def _sets_up(function: Any) -> bool:
    return function.setup_context is not torch.autograd.Function.setup_context


def _without_first(function: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _described(call: Callable[..., Any], arguments: dict[str, Any]) -> Subject:
    """The function with the names of its results, and of the arguments that it writes to, as one call shows them."""
    copies = {name: one.clone() if isinstance(one, Tensor) else one for name, one in arguments.items()}
    try:
        returned = call(**copies)
    except Exception as error:  # whatever the candidate raises
        raise SubjectError(f"it raises on a given call: {type(error).__name__}: {error}") from error
    each = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    if not all(isinstance(one, Tensor) for one in each):
        kinds = ", ".join(type(one).__name__ for one in each)
        raise SubjectError(f"it returns {kinds}; return a tensor, or a tuple of tensors")
    results = tuple(f"result{i}" for i in range(len(each))) if isinstance(returned, tuple) else ("result",) * len(each)
    written = [
        name
        for name, one in arguments.items()
        if isinstance(one, Tensor) and (one.shape != copies[name].shape or bool(differing(one, copies[name]).any()))
    ]
    return Subject(call, results, tuple(written))
