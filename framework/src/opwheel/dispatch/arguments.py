"""Arguments of calls that a schema admits or cannot tell apart, and no kernel computes with."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType
from typing import Any, TypeGuard

import torch
from torch import Tensor

from .overload import Overload, tensors_in

# How PyTorch begins, over five lines, where an argument is not of the schema's type.
_OTHER_TYPE = r"\w+::(\w+)\(\) Expected a value of type '(.+)' for argument '(\w+)' but instead found type '(.+)'\."


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether it is a tensor, or an object that takes part in PyTorch's functions as one."""
    return isinstance(value, Tensor) or (not isinstance(value, Real) and hasattr(value, "__torch_function__"))


def _is_bool_of_numpy(value: object) -> TypeGuard[int]:
    """Of all scalars of NumPy it alone is no number to Python."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.bool_)


def number(value: object, argument: str, expected: str = "a number or a torch.Tensor") -> float:
    """The number that is meant.

    Args:
        value: what was given.
        argument: the function and the name of its argument, for the error.
        expected: what may be given.

    Raises:
        TypeError: it is none.
        OverflowError: it is beyond every float.
    """
    if isinstance(value, (float, torch.SymFloat, torch.SymInt)):
        return value  # type: ignore[return-value]  # as numbers of a graph they are one
    if isinstance(value, (int, Real)) or _is_bool_of_numpy(value):
        try:
            return float(value)
        except OverflowError:
            raise OverflowError(
                f"{argument} is of type {type(value).__name__} and beyond every float (1.8e308); pass float('inf') "
                "where infinity is meant"
            ) from None
    raise TypeError(f"{argument} is a {type(value).__name__}, expected {expected}")


def in_a_sentence(error: RuntimeError) -> Exception:
    """A TypeError in the place of what PyTorch raises for an argument of another type; any other error is returned.

    Called by ``framework/src/opwheel/csrc/calls/calls.cpp``.
    """
    found = re.match(_OTHER_TYPE, str(error))
    if found is None or found[2] == found[4]:  # an int, too large for the schema's
        return error
    function, expected, argument, given = found.groups()
    kind = expected.removeprefix("Optional[").removesuffix("]") if expected.startswith("Optional[") else expected
    wanted = _with_article("torch.Tensor" if kind == "Tensor" else kind) + (" or None" if kind != expected else "")
    what = "None" if given == "NoneType" else _with_article(given)
    return TypeError(f"{function}: argument {argument!r} is {what}, expected {wanted}")


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def check_tensors(overload: Overload, args: tuple[Any, ...], kwargs: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Refuse what is no tensor of one shape: None, which the dispatcher passes on, and nested tensors.

    Raises:
        TypeError: an argument is None.
        RuntimeError: an argument is a nested tensor.
    """
    values = overload.bind(args, kwargs)
    for i in overload.tensor_positions:
        name, value = overload.names[i], values[i]
        if i >= len(args) and name not in kwargs:
            continue
        if value is None and str(overload.schema.arguments[i].real_type) == "Tensor":
            raise TypeError(f"{overload.name}: argument '{name}' is None, expected a torch.Tensor")
        if any(tensor.is_nested for tensor in tensors_in((value,))):
            raise RuntimeError(
                f"{overload.name}: argument '{name}' is a nested tensor; only tensors of one shape, of layout "
                "torch.strided, are supported. Pass its .values(), call it for each of .unbind(), or convert it first "
                "with torch.nested.to_padded_tensor"
            )
