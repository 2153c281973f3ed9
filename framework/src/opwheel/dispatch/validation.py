"""Refuses declarations whose fields are not what they are to be: most would be noticed late, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, get_args

import torch

from .declaration import AutocastPolicy, CompilePolicy, Operator
from .rules import Rule
from .samples import Tolerance


def check_declarations(namespace: str, operators: Iterable[Operator]) -> None:
    """Check every field of every declaration, and that none is there twice.

    Raises:
        ValueError: naming the operator, the field, what it is and what is expected.
    """
    seen: set[str] = set()
    for operator in operators:
        if not isinstance(operator, Operator):
            raise ValueError(f"{namespace}: {operator!r} is in the list of operators, expected an opwheel.Operator")
        for field, (is_right, expected) in _FIELDS.items():
            value = getattr(operator, field)
            if not is_right(value):
                _refuse(namespace, operator, field, value, expected)
        if operator.name in seen:
            raise ValueError(f"{namespace}: there are two declarations of {operator.name!r}; leave one of them out")
        seen.add(operator.name)


def _refuse(namespace: str, operator: Operator, field: str, value: object, expected: str) -> NoReturn:
    raise ValueError(f"{namespace}::{operator.name}: {field} is {value!r}, expected {expected}")


def _is_none_or(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _are_names(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(map(_is_name, value))


def _maps(keys: Callable[[Any], bool], values: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return isinstance(value, Mapping) and all(map(keys, value)) and all(map(values, value.values()))

    return check


def _is_dtype(value: object) -> bool:
    return isinstance(value, torch.dtype)


def _one_of(alias: Any) -> tuple[Callable[[Any], bool], str]:
    words = get_args(alias)
    return lambda value: value in words, " or ".join(map(repr, words))


_CALLS = "a function that gives calls, or None"
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_name, "the name of a schema"),
    "reference": (callable, "a function"),
    "rule": (lambda value: isinstance(value, Rule), "a rule such as Opaque(), Rows(x=1) or Elementwise()"),
    "derivatives": (
        _is_none_or(_maps(_is_name, lambda formula: isinstance(formula, str) or callable(formula))),
        "a dict from names of tensors to formulas, or None where it is not differentiable",
    ),
    "not_differentiable": (_are_names, "a tuple of names of results"),
    "training": (lambda value: isinstance(value, str), "the name of an operator"),
    "autocast": _one_of(AutocastPolicy),
    "compile": _one_of(CompilePolicy),
    "flops": (lambda value: isinstance(value, int) or callable(value), "a number or a function"),
    "tensor_variant": (_maps(_is_name, _is_name), "a dict from names of arguments to names of operators"),
    "samples": (_is_none_or(callable), _CALLS),
    "measured": (_is_none_or(callable), _CALLS),
    "errors": (_is_none_or(callable), _CALLS),
    "dtypes": (
        _is_none_or(lambda value: isinstance(value, (tuple, list)) and bool(value) and all(map(_is_dtype, value))),
        "a tuple of dtypes such as torch.float32, or None",
    ),
    "tolerance": (
        _maps(_is_dtype, lambda one: isinstance(one, Tolerance)),
        "a dict from dtypes such as torch.float32 to Tolerance(rtol, atol)",
    ),
    "fake": (_is_none_or(callable), "a function, or None"),
    "peers": (_maps(_is_name, callable), "a dict from names to functions"),
    "doc": (lambda value: isinstance(value, str), "a docstring"),
}
