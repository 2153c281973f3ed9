"""Formulas as text, in the notation of PyTorch's derivatives.yaml.

``"norm_backward(grad, x, weight, rstd)"``, ``"mul(grad, b)"``, ``"-grads[0] * aten::cos(x)"``: calls of the library's
own operators by name and of others as ``namespace::name``, the four arithmetic operators, numbers and names. Nothing
else is understood, so that a formula can be computed without Python as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from ..functions import functions_of

_NAMESPACE = re.compile(r"\b(\w+)::(\w+)")
_GRADS = re.compile(r"\bgrads\[(\d+)\]")
_MEANT = {"true": "True", "false": "False"}


class TextFormula(NamedTuple):
    """A formula, understood.

    Args:
        names: what it uses, in the order of the function's parameters: arguments, results, ``grad``, ``grads[0]`` ...
        function: computes it.
        own: the operators of its own library that it calls.
    """

    names: tuple[str, ...]
    function: Callable[..., Any]
    own: tuple[str, ...]


def parse(namespace: str, text: str) -> TextFormula:
    """Understand a formula of a library's operator.

    Raises:
        ValueError: saying what is not understood.
    """
    source = _GRADS.sub(r"grads__\1", _NAMESPACE.sub(r"\1__of__\2", text))
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no formula: {error.msg}") from None
    names: dict[str, None] = {}
    own: dict[str, None] = {}
    body = _written(tree, names, own, text)
    parameters = ", ".join(names)
    scope = {"_own": _Own(namespace), "_torch": torch.ops}
    function = eval(f"lambda {parameters}: {body}", scope)  # noqa: S307  # of what _written has let through
    return TextFormula(
        tuple(re.sub(r"^grads__(\d+)$", r"grads[\1]", n) for n in names), _named(function, text), tuple(own)
    )


class _Own:
    """The operators of a library as attributes: its functions, which are the shortest way, or else ``torch.ops``."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        found = getattr(functions_of(self._namespace), name, None) or getattr(getattr(torch.ops, self._namespace), name)
        setattr(self, name, found)  # looked up once
        return found


def _written(node: ast.expr, names: dict[str, None], own: dict[str, None], text: str) -> str:
    """The expression in Python's words; notes the names and the operators that it uses."""

    def of(part: ast.expr) -> str:
        return _written(part, names, own, text)

    match node:
        case ast.Name(id=name):
            if name in _MEANT:
                return _MEANT[name]
            names[name] = None
            return name
        case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{of(operand)})"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as sign, right=right):
            return f"({of(left)} {_SIGNS[type(sign)]} {of(right)})"
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return f"[{', '.join(map(of, parts))}]"
        case ast.Call(func=ast.Name(id=called), args=args, keywords=keywords) if all(k.arg for k in keywords):
            given = ", ".join([*map(of, args), *(f"{k.arg}={of(k.value)}" for k in keywords)])
            namespace, separator, operator = called.partition("__of__")
            if not separator:
                own[called] = None
                return f"_own.{called}({given})"
            return f"_torch.{namespace}.{operator}({given})"
    raise ValueError(
        f"{text!r}: {ast.unparse(node)!r} is not understood; a formula has names, numbers, calls of operators, and "
        "+ - * /. Give a function instead"
    )


_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _named(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    function.__qualname__ = function.__name__ = text
    return function


parse = cache(parse)
