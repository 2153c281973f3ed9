"""An author's functions in Python: whether they take a schema's arguments, and what is said where they go wrong."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._torch import private
from .overload import as_tuple, tensors_in
from .results import ResultError, owner_of

_Function = Callable[..., Any]


def check_parameters(schema_text: str, what: str, function: _Function) -> None:
    """Refuse a function that cannot be called with a schema's arguments, or calls them by other names.

    Positional arguments are passed by position: under another name one may be another's.

    Args:
        schema_text: with the namespace.
        what: the function is, for the message.
        function: one without a signature, as of C, is not checked.

    Raises:
        ValueError: naming the operator, the function, and what it is called with.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    arguments = private.parse_schema(schema_text.partition("::")[2]).arguments
    positional = [argument.name for argument in arguments if not argument.kwarg_only]
    named = [argument.name for argument in arguments if argument.kwarg_only]
    try:
        signature.bind(*positional, **dict.fromkeys(named))
        own = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        fits = all(mine == name for mine, name in zip(own, positional, strict=False))
    except TypeError:
        fits = False
    if not fits:
        call = ", ".join([*positional, *(f"{name}={name}" for name in named)])
        raise ValueError(
            f"{schema_text}: its {what} {owner_of(function)}{signature} is called as ({call}); give it the schema's "
            "parameters, by these names and in this order"
        )


def is_numpy_caller(function: _Function) -> bool:
    """Whether a function in Python calls ``.numpy()`` of something."""
    code = getattr(function, "__code__", None)
    attributes = ("LOAD_ATTR", "LOAD_METHOD")
    return code is not None and any(i.opname in attributes and i.argval == "numpy" for i in dis.get_instructions(code))


def kernel_of(name: str, function: _Function) -> _Function:
    """The function as a kernel: its tensors record no gradient, and what NumPy cannot do is explained.

    Args:
        name: of the operator.
        function: the author's.
    """

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = tuple([_detached(value) for value in args])
        kwargs = {key: _detached(value) for key, value in kwargs.items()}
        try:
            results = function(*args, **kwargs)
        except TypeError as error:
            dtype = re.search(r"unsupported ScalarType (\w+)", str(error))
            if not dtype:
                raise
            raise TypeError(
                f"{name}: its kernel {owner_of(function)} called .numpy() of a {dtype[1]} tensor, which NumPy does not "
                "have; write x.float().numpy(), and round the result: torch.from_numpy(y).to(x.dtype)"
            ) from error
        if any(type(one).__module__ == "numpy" for one in as_tuple(results)):
            raise ResultError(
                f"{name}: its kernel returned a NumPy {type(as_tuple(results)[0]).__name__}, expected a tensor: return "
                "torch.from_numpy(y), or torch.as_tensor(y) for a number"
            )
        return results

    kernel.__module__, kernel.__qualname__ = function.__module__, getattr(function, "__qualname__", repr(function))
    return kernel


def _detached(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_detached(one) for one in value]
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


def reference_of(name: str, function: _Function) -> _Function:
    """The function as its own reference, where that can be differentiated.

    Args:
        name: of the operator.
        function: its kernel.

    A call raises RuntimeError where a gradient would be lost, as in ``x.detach()``.
    """

    def reference(*args: Any, **kwargs: Any) -> Any:
        results = function(*args, **kwargs)
        floating = [one for one in as_tuple(results) if isinstance(one, Tensor) and one.is_floating_point()]
        is_lost = bool(floating) and not any(one.requires_grad for one in floating)
        given = tensors_in((*args, *kwargs.values()))
        if is_lost and torch.is_grad_enabled() and any(one.requires_grad for one in given):
            raise RuntimeError(
                f"{name}: a gradient is needed, and its function {owner_of(function)} gives results without one; give "
                "define(reference=...) the same computation in PyTorch's operators, or derivatives=None"
            )
        return results

    return reference
