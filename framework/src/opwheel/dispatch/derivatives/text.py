"""Formulas as text, in the notation of PyTorch's derivatives.yaml.

``"norm_backward(grad, x, weight, rstd)"``, ``"mul(grad, b)"``, ``"-grads[0] * aten::cos(x)"``: calls of the library's
own operators by name and of others as ``namespace::name``, the four arithmetic operators, numbers and names. Nothing
else is understood, so that a formula can be computed without Python as well.

This is the only place where they are parsed: C++ is given what is understood here (:mod:`.notation`).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import torch

from ..functions import functions_of
from .expression import Arithmetic, Call, Constant, Expression, Listed, Name, Negative, in_python, walk
from .names import CONSTANTS

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}

# `namespace::name`, which is not Python, and strings, where it stays as it is.
_QUALIFIED = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b(\w+)::(?=\w)"""
_OF = "__of__"  # in its place


class TextFormula:
    """A formula, understood.

    Attributes:
        expression: what it computes.
        names: what it uses, in the order of the function's parameters: arguments, results, ``grad``, ``grads[0]`` ...
        constants: of :data:`~.names.CONSTANTS`, those that it uses.
        calls: of operators.
    """

    def __init__(self, namespace: str, text: str) -> None:
        parser = _Parser(namespace, text)
        self.expression = parser.parse()
        self.names = tuple(parser.parameters)
        parts = list(walk(self.expression))
        self.constants = tuple(one.word for one in parts if isinstance(one, Constant) and one.word)
        self.calls = tuple(one for one in parts if isinstance(one, Call))
        self._namespace = namespace
        self._text = text
        self._parameters = parser.parameters

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Computes it. Made when it is needed: all formulas of a library at once would delay the import."""
        scope = {"_own": _Own(self._namespace), "_torch": torch.ops}
        source = f"lambda {', '.join(self._parameters.values())}: {in_python(self.expression)}"
        function: Callable[..., Any] = eval(source, scope)  # noqa: S307  # of what the parser has let through
        function.__qualname__ = function.__name__ = self._text
        return function


@cache
def parse(namespace: str, text: str) -> TextFormula:
    """Understand a formula of a library's operator.

    Raises:
        ValueError: saying what is not understood.
    """
    return TextFormula(namespace, text)


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


class _Parser:
    """Python's parser, and of what it understands that which formulas may have.

    Attributes:
        parameters: for each name that the formula uses the function's parameter that stands for it.
    """

    def __init__(self, namespace: str, text: str) -> None:
        self._namespace = namespace
        self._text = text
        self._source = text.strip()
        if "::" in text:  # few formulas have it, and the pattern takes long to compile
            self._source = re.sub(_QUALIFIED, lambda m: m[1] or f"{m[2]}{_OF}", self._source)
        self.parameters: dict[str, str] = {}

    def parse(self) -> Expression:
        try:
            tree = ast.parse(self._source, mode="eval").body
        except SyntaxError as error:
            lines = self._source.splitlines()[(error.lineno or 1) - 1 :]
            rest = _as_written(lines[0][error.offset - 1 :]) if lines and error.offset else ""
            where = f"at {rest!r}" if rest else "at its end"
            raise ValueError(f"{self._text!r} is not a formula: {error.msg} {where}") from None
        return self._understood(tree)

    def _understood(self, node: ast.expr) -> Expression:
        of = self._understood
        match node:
            case ast.Name(id=word) if word in CONSTANTS:
                return Constant(CONSTANTS[word], word)
            case ast.Name(id=name):
                return self._named(name)
            case ast.Subscript(value=ast.Name(id="grads"), slice=ast.Constant(value=i)) if type(i) is int:
                return self._named(f"grads[{i}]")
            case ast.Constant(value=float(value)) if math.isinf(value):
                raise ValueError(f"{self._text!r}: {self._words_of(node)!r} is more than a number can be")
            case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
                return Constant(value)
            case ast.UnaryOp(op=ast.USub(), operand=part):
                operand = of(part)
                if isinstance(operand, Constant) and operand.is_number:
                    return Constant(-operand.value)  # type: ignore[operator]
                return Negative(operand)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as sign, right=right):
                return Arithmetic(_SIGNS[type(sign)], of(left), of(right))
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return Listed(*map(of, parts))
            case ast.Call(func=ast.Name(id=called), args=args, keywords=keywords) if all(k.arg for k in keywords):
                namespace, is_qualified, name = called.rpartition(_OF)
                given = [of(one) for one in args]
                by_name = {str(k.arg): of(k.value) for k in keywords}
                if len(by_name) < len(keywords):
                    raise ValueError(f"{self._text!r}: {self._words_of(node)!r} gives an argument twice")
                return Call(namespace or self._namespace, name, given, by_name, is_own=not is_qualified)
        raise ValueError(
            f"{self._text!r}: {self._words_of(node)!r} is not understood; a formula has names, numbers, calls of "
            "operators, and + - * /. Give a function instead"
        )

    def _named(self, name: str) -> Name:
        return Name(name, self.parameters.setdefault(name, f"value{len(self.parameters)}"))

    def _words_of(self, node: ast.expr) -> str:
        return _as_written(ast.get_source_segment(self._source, node) or "")


def _as_written(source: str) -> str:
    return source.replace(_OF, "::")
