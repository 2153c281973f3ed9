"""Formulas as text, in the notation of PyTorch's derivatives.yaml.

``"norm_backward(grad, x, weight, rstd)"``, ``"mul(grad, b)"``, ``"-grads[0] * aten::cos(x)"``: calls of the library's
own operators by name and of others as ``namespace::name``, the four arithmetic operators, numbers and names. Nothing
else is understood, so that a formula can be computed without Python as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch

from ..functions import functions_of

# Words for constants that could be names as well; None, True and False cannot be names in a schema.
CONSTANTS = {"true": "True", "false": "False"}


class OwnCall(NamedTuple):
    """A call of an operator of the formula's own library."""

    name: str
    positional: int
    keywords: frozenset[str]
    is_outermost: bool

    def fits(self, schema: Any) -> bool:
        """Whether an operator with that schema takes these arguments."""
        plain = [argument.name for argument in schema.arguments if not argument.kwarg_only]
        given = {*plain[: self.positional], *self.keywords}
        known = {argument.name for argument in schema.arguments}
        return (
            self.positional <= len(plain)
            and self.keywords <= known - {*plain[: self.positional]}
            and all(argument.name in given or argument.has_default_value() for argument in schema.arguments)
        )


class _Used(NamedTuple):
    """What a formula uses."""

    names: dict[str, str]  # for each name the parameter that stands for it
    constants: list[str]
    calls: list[OwnCall]


class TextFormula:
    """A formula, understood.

    Attributes:
        names: what it uses, in the order of the function's parameters: arguments, results, ``grad``, ``grads[0]`` ...
        constants: of :data:`CONSTANTS`, those that it uses.
        calls: of the operators of its own library.
    """

    def __init__(self, namespace: str, text: str, used: _Used, body: str) -> None:
        self.names = tuple(used.names)
        self.constants = tuple(used.constants)
        self.calls = tuple(used.calls)
        self._namespace = namespace
        self._text = text
        self._source = f"lambda {', '.join(used.names.values())}: {body}"

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Computes it. Made when it is needed: all formulas of a library at once would delay the import."""
        scope = {"_own": _Own(self._namespace), "_torch": torch.ops}
        function: Callable[..., Any] = eval(self._source, scope)  # noqa: S307  # of what _written has let through
        function.__qualname__ = function.__name__ = self._text
        return function


@cache
def parse(namespace: str, text: str) -> TextFormula:
    """Understand a formula of a library's operator.

    Raises:
        ValueError: saying what is not understood.
    """
    source = re.sub(r"\b(\w+)::(\w+)", r"\1__of__\2", text) if "::" in text else text
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not a formula: {error.msg}") from None
    used = _Used({}, [], [])
    body = _written(tree, used, text)
    if isinstance(tree, ast.Call) and body.startswith("_own."):
        used.calls[-1] = used.calls[-1]._replace(is_outermost=True)
    return TextFormula(namespace, text, used, body)


def targets_of(key: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Whose gradients a formula's results are, and which result each of them takes.

    ``"x, weight"`` take the first and the second; in ``"(x, residual), weight"`` two share the first.

    Raises:
        ValueError: parentheses do not match.
    """
    names: list[str] = []
    results: list[int] = []
    is_shared = False
    for name in map(str.strip, key.split(",")):
        begins, ends = name.startswith("("), name.endswith(")")
        if (is_shared and begins) or (ends and not is_shared and not begins):
            raise ValueError("its parentheses do not match")
        results.append(results[-1] if is_shared else len({*results}))
        is_shared = (is_shared or begins) and not ends
        names.append(name.removeprefix("(").removesuffix(")").strip())
    if is_shared:
        raise ValueError("its parentheses do not match")
    return tuple(names), tuple(results)


class _Own:
    """The operators of a library as attributes: its functions, which are the shortest way, or else ``torch.ops``."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        found = getattr(functions_of(self._namespace), name, None) or getattr(getattr(torch.ops, self._namespace), name)
        setattr(self, name, found)  # looked up once
        return found


def _written(node: ast.expr, used: _Used, text: str) -> str:
    """The expression in Python's words, with parameters of its own for names; notes what it uses."""

    def of(part: ast.expr) -> str:
        return _written(part, used, text)

    match node:
        case ast.Name(id=name) if name in CONSTANTS:
            used.constants.append(name)
            return CONSTANTS[name]
        case ast.Name(id=name):
            return used.names.setdefault(name, f"value{len(used.names)}")
        case ast.Subscript(value=ast.Name(id="grads"), slice=ast.Constant(value=i)) if type(i) is int:
            return used.names.setdefault(f"grads[{i}]", f"value{len(used.names)}")
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
                used.calls.append(OwnCall(called, len(args), frozenset(k.arg for k in keywords if k.arg), False))
                return f"_own.{called}({given})"
            return f"_torch.{namespace}.{operator}({given})"
    raise ValueError(
        f"{text!r}: {ast.unparse(node)!r} is not understood; a formula has names, numbers, calls of operators, and "
        "+ - * /. Give a function instead"
    )


_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
