"""Refuses declarations whose fields are not what they are to be: most would be noticed late, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import torch

from . import autocast_policy
from .declaration import CompilePolicy, Operator
from .rules import Rule
from .sharded_reduction import ShardedReduction

Field = tuple[Callable[[Any], bool], str]
"""Whether a field's value is right, and what is expected."""


def check_declarations(namespace: str, operators: Iterable[Operator]) -> None:
    """Check every field of every declaration, and that none is there twice.

    Raises:
        ValueError: naming the operator, the field, what it is and what is expected.
    """
    seen: set[str] = set()
    for operator in operators:
        if not isinstance(operator, Operator):
            raise ValueError(f"{namespace}: {operator!r} is in the list of operators, expected an opwheel.Operator")
        check_fields(f"{namespace}::{operator.name}", operator, _FIELDS)
        if operator.name in seen:
            raise ValueError(f"{namespace}: there are two declarations of {operator.name!r}; leave one of them out")
        seen.add(operator.name)


def check_fields(owner: str, declaration: object, fields: Mapping[str, Field]) -> None:
    """Check the fields of a declaration.

    Args:
        owner: whose declaration it is, for the message.
        declaration: that has the fields as attributes.
        fields: by name, whether a value is right, and what is expected.

    Raises:
        ValueError: naming the owner, the field, what it is and what is expected.
    """
    for field, (is_right, expected) in fields.items():
        value = getattr(declaration, field)
        if not is_right(value):
            raise ValueError(f"{owner}: {field} is {value!r}, expected {expected}")


def is_none_or(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is None, or passes the check."""
    return lambda value: value is None or check(value)


def is_name(value: object) -> bool:
    """Whether a value is a string that is not empty."""
    return isinstance(value, str) and bool(value)


def are_names(value: object) -> bool:
    """Whether a value is a tuple or list of such strings."""
    return isinstance(value, (tuple, list)) and all(map(is_name, value))


def maps(keys: Callable[[Any], bool], values: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is a mapping whose keys and values pass the checks."""

    def check(value: Any) -> bool:
        return isinstance(value, Mapping) and all(map(keys, value)) and all(map(values, value.values()))

    return check


def _one_of(alias: Any) -> Field:
    words = get_args(alias)
    return lambda value: value in words, " or ".join(map(repr, words))


_FIELDS: dict[str, Field] = {
    "name": (is_name, "the name of a schema"),
    "reference": (callable, "a function"),
    "rule": (lambda value: isinstance(value, Rule), "a rule such as Opaque(), Rows(x=1) or Elementwise()"),
    "derivatives": (
        is_none_or(maps(is_name, lambda formula: isinstance(formula, str) or callable(formula))),
        "a dict from names of tensors to formulas, or None where it is not differentiable",
    ),
    "not_differentiable": (are_names, "a tuple of names of results and tensors"),
    "training": (lambda value: isinstance(value, str), "the name of an operator"),
    "autocast": (autocast_policy.is_autocast, autocast_policy.EXPECTED),
    "compile": _one_of(CompilePolicy),
    "flops": (lambda value: isinstance(value, int) or callable(value), "a number or a function"),
    "tensor_variant": (maps(is_name, is_name), "a dict from names of arguments to names of operators"),
    "invariant": (maps(is_name, lambda _: True), "a dict from names of claims to True or dimensions"),
    "placements": (are_names, "a tuple of texts such as 'x=S(0) -> S(0)'"),
    "sharded": (is_none_or(lambda value: isinstance(value, ShardedReduction)), "a ShardedReduction, or None"),
    "fake": (is_none_or(callable), "a function, or None"),
    "memory_format": (
        lambda value: value in (torch.contiguous_format, torch.preserve_format),
        "torch.contiguous_format or torch.preserve_format",
    ),
    "doc": (lambda value: isinstance(value, str), "a docstring"),
}
