"""Formulas as text, in the notation of PyTorch's derivatives.yaml.

``"norm_backward(grad, x, weight, rstd)"``, ``"grad * x.cos().conj()"``, ``"grad.expand(x.sym_sizes())"``: calls of the
library's own operators by name, of others as ``namespace::name``, of PyTorch's as methods, too; properties of tensors;
the four arithmetic operators, numbers, lists and names. Nothing else is understood, so that a formula can be computed
without Python as well.

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
from .expression import (
    Arithmetic,
    Call,
    Conjugate,
    Constant,
    Expression,
    Listed,
    Name,
    Negative,
    Property,
    in_python,
    walk,
)
from .names import CONSTANTS

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
# PyTorch's operators for comparisons, and those that they are where the number comes first.
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("eq", "eq"),
    ast.NotEq: ("ne", "ne"),
    ast.Lt: ("lt", "gt"),
    ast.LtE: ("le", "ge"),
    ast.Gt: ("gt", "lt"),
    ast.GtE: ("ge", "le"),
}

# The properties of a tensor by what formulas call them: as in derivatives.yaml, and without "sym_". Sizes keep symbols.
_PROPERTIES = {
    "sym_sizes": "sizes",
    "sizes": "sizes",
    "sym_numel": "numel",
    "numel": "numel",
    "dim": "dim",
    "scalar_type": "scalar_type",
    "device": "device",
    "layout": "layout",
}
_SIZES = ("sym_size", "size")  # those of one dimension
PROPERTY_NAMES = (*_SIZES, *_PROPERTIES)
_OPTIONS = {"dtype": "scalar_type", "layout": "layout", "device": "device"}  # what x.options() stands for in a call

# `namespace::name`, which is not Python, and strings, where it stays as it is. In its place there are two letters, so
# that columns stay as they are.
_QUALIFIED = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?<=\w)::(?=[^\W\d])"""
_OF = "\N{MODIFIER LETTER TRIANGULAR COLON}" * 2

_KNOWN = (
    "a formula has names, numbers, lists, + - * /, comparisons, calls of operators (scale(grad, a), aten::cos(x), "
    "x.cos()), .conj() and what is known of a tensor without its elements: .sym_size(0), "
    f"{', '.join(f'.{name}()' for name in _PROPERTIES)}, and .options() among the arguments of a call. "
    "Give a function instead"
)


class FormulaError(ValueError):
    """What a formula cannot have.

    Args:
        problem: what it is.
        way_out: what to write instead, or what is known.
        marked: the line of the formula, with a caret under the column.
    """

    code = None

    def __init__(self, problem: str, way_out: str, marked: str) -> None:
        super().__init__(problem, way_out, marked)
        self.problem = problem
        self.way_out = way_out
        self.marked = marked

    def __str__(self) -> str:
        return f"{self.problem}; {self.way_out}{self.marked}"


class TextFormula:
    """A formula, understood.

    Attributes:
        expression: what it computes.
        names: of arguments, results and gradients that are in it: ``x``, ``grad``, ``grads[0]`` ...
        given: what its function is called with, in the order of its parameters: names, and keys of ``properties``.
        properties: of tensors with a name, by their keys. Where no formula has the name otherwise, the tensor is not
            needed.
        constants: of :data:`~.names.CONSTANTS`, those that it uses.
        calls: of operators.
    """

    def __init__(self, namespace: str, text: str) -> None:
        parser = _Parser(namespace, text)
        self.expression = parser.parse()
        self.given = tuple(parser.parameters)
        self.properties = parser.properties
        self.parts = list(walk(self.expression))
        self.names = tuple(dict.fromkeys(one.name for one in self.parts if isinstance(one, Name)))
        self.constants = tuple(one.word for one in self.parts if isinstance(one, Constant) and one.word)
        self.calls = tuple(one for one in self.parts if isinstance(one, Call))
        self._namespace = namespace
        self._text = text
        self._parameters = parser.parameters

    @cached_property
    def function(self) -> Callable[..., Any]:
        """Computes it. Made when it is needed: all formulas of a library at once would delay the import."""
        scope = {"_own": _Own(self._namespace), "_torch": torch.ops, "_conjugate": _conjugate}
        source = f"lambda {', '.join(self._parameters.values())}: {in_python(self.expression)}"
        function: Callable[..., Any] = eval(source, scope)  # noqa: S307  # of what the parser has let through
        function.__qualname__ = function.__name__ = self._text
        return function

    def marked(self, part: Expression) -> str:
        """The line where a part of it begins, with a caret under the column."""
        return _marked(self._text.strip(), *part.place)


@cache
def parse(namespace: str, text: str) -> TextFormula:
    """Understand a formula of a library's operator.

    Raises:
        FormulaError: saying what is not understood, and where.
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
        parameters: for each name or property that the formula is given the function's parameter that stands for it.
        properties: of tensors with a name, by their keys.
    """

    def __init__(self, namespace: str, text: str) -> None:
        self._namespace = namespace
        self._source = text.strip()
        if "::" in text:  # few formulas have it, and the pattern takes long to compile
            self._source = re.sub(_QUALIFIED, lambda m: m[1] or _OF, self._source)
        self.parameters: dict[str, str] = {}
        self.properties: dict[str, Property] = {}

    def parse(self) -> Expression:
        try:
            tree = ast.parse(self._source, mode="eval").body
        except SyntaxError as error:
            end = len((error.text or "").rstrip("\n"))
            marked = _marked(self._source, error.lineno or 1, error.offset - 1 if error.offset else end)
            raise FormulaError(f"it is not a formula: {error.msg}", _KNOWN, marked) from None
        return self._understood(tree)

    def _understood(self, node: ast.expr) -> Expression:
        expression = self._made(node)
        expression.place = self._place_of(node)
        return expression

    def _made(self, node: ast.expr) -> Expression:
        of = self._understood
        if found := _name_of(node):
            if _OF in found:
                raise self._error(node, "is not understood")
            return Name(found, self._parameter(found))
        match node:
            case ast.Name(id=word):
                return Constant(CONSTANTS[word], word)
            case ast.Constant(value=float(value)) if math.isinf(value):
                raise self._error(node, "is more than a number can be", "write it as a float64 number")
            case ast.Constant(value=value) if value is None or isinstance(value, (bool, int, float, str)):
                return Constant(value)
            case ast.UnaryOp(op=ast.USub(), operand=part):
                operand = of(part)
                if isinstance(operand, Constant) and operand.is_number:
                    return Constant(-operand.value)  # type: ignore[operator]
                return Negative(operand)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as sign, right=right):
                return Arithmetic(_SIGNS[type(sign)], of(left), of(right))
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _COMPARISONS:
                return self._comparison(sign, of(left), of(right))
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return Listed(*map(of, parts))
            case ast.Dict(keys=[]):  # {}, C++'s empty list
                return Listed()
            case ast.Attribute(value=tensor, attr="device"):
                return self._property(node, "device", None, tensor)
            case ast.Call(func=ast.Attribute(value=tensor, attr=name), args=[], keywords=[]) if name in _PROPERTIES:
                return self._property(node, _PROPERTIES[name], None, tensor)
            case ast.Call(func=ast.Attribute(value=tensor, attr=name), args=[], keywords=[]) if name in _SIZES:
                return self._property(node, "sizes", None, tensor)
            case ast.Call(func=ast.Attribute(value=tensor, attr=name), args=[dim], keywords=[]) if name in _SIZES:
                return self._property(node, "size", self._dimension(dim), tensor)
            case ast.Call(func=ast.Attribute(value=operand, attr="conj"), args=[], keywords=[]):
                return Conjugate(of(operand))
            case ast.Call(func=ast.Attribute(value=tensor, attr=name)):
                return self._call(node, "aten", name, [of(tensor)], is_own=False)
            case ast.Call(func=ast.Name(id=called)):
                namespace, is_qualified, name = called.rpartition(_OF)
                namespace = "aten" if namespace == "at" else namespace  # as C++ has PyTorch's functions
                return self._call(node, namespace or self._namespace, name, [], is_own=not is_qualified)
        raise self._error(node, "is not understood")

    @staticmethod
    def _comparison(sign: ast.cmpop, left: Expression, right: Expression) -> Call:
        name, swapped = _COMPARISONS[type(sign)]
        if isinstance(left, Constant):
            return Call("aten", swapped, [right, left], {}, is_own=False)
        return Call("aten", name, [left, right], {}, is_own=False)

    def _call(self, node: ast.Call, namespace: str, name: str, given: list[Expression], *, is_own: bool) -> Call:
        by_name: dict[str, Expression] = {}
        for one in node.args:
            match one:
                case ast.Call(func=ast.Attribute(value=tensor, attr="options"), args=[], keywords=[]):
                    by_name |= {key: self._property(one, what, None, tensor) for key, what in _OPTIONS.items()}
                case _:
                    given.append(self._understood(one))
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self._error(node, "is not understood")
            if keyword.arg in by_name:
                raise self._error(node, "gives an argument twice", f"leave one {keyword.arg!r} away")
            by_name[keyword.arg] = self._understood(keyword.value)
        if namespace == "aten":
            name = name.removesuffix("_symint")  # C++ has sizes with symbols in functions of that name
        in_place = name if is_own and name.endswith("_") else ""
        if in_place:
            name = name[:-1]
        return Call(namespace, name, given, by_name, is_own=is_own, in_place=in_place)

    def _property(self, node: ast.expr, what: str, dimension: int | None, tensor: ast.expr) -> Property:
        """One of a tensor with a name is a parameter of its own, so that the tensor need not be one."""
        if name := _name_of(tensor):
            of = Name(name)
            of.place = self._place_of(tensor)
            key = Property(what, dimension, of).key
            return self.properties.setdefault(key, Property(what, dimension, of, self._parameter(key)))
        operand = self._understood(tensor)
        if isinstance(operand, (Constant, Listed)):
            raise self._error(node, "is not understood: only a tensor has properties")
        return Property(what, dimension, operand)

    def _dimension(self, node: ast.expr) -> int:
        dimension = self._understood(node)
        if isinstance(dimension, Constant) and type(dimension.value) is int:
            return dimension.value
        raise self._error(node, "is not understood", "the dimension of a size is a number such as 0 or -1")

    def _parameter(self, key: str) -> str:
        return self.parameters.setdefault(key, f"value{len(self.parameters)}")

    def _error(self, node: ast.expr, problem: str, way_out: str = _KNOWN) -> FormulaError:
        words = (ast.get_source_segment(self._source, node) or "").replace(_OF, "::")
        return FormulaError(f"{words!r} {problem}", way_out, _marked(self._source, *self._place_of(node)))

    def _place_of(self, node: ast.expr) -> tuple[int, int]:
        """Its line and column; Python's parser counts bytes."""
        line = self._source.splitlines()[node.lineno - 1]
        return node.lineno, len(line.encode()[: node.col_offset].decode())


def _name_of(node: ast.expr) -> str:
    """The name of what the formula is given, if that is what stands there; else empty."""
    match node:
        case ast.Name(id=name) if name not in CONSTANTS:
            return name
        case ast.Subscript(value=ast.Name(id="grads"), slice=ast.Constant(value=i)) if type(i) is int:
            return f"grads[{i}]"
    return ""


def _marked(source: str, line: int, column: int) -> str:
    lines = source.splitlines() or [""]
    return f"\n    {lines[min(line, len(lines)) - 1].replace(_OF, '::')}\n    {' ' * column}^"


def _conjugate(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.conj()
    return value.conjugate() if isinstance(value, complex) else value
