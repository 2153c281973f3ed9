"""For which calls a kernel is taken: an expression over the arguments, in Python's notation.

The same text is evaluated in Python, written for the native library, and shown to the user.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

# What c10::ScalarType has for them.
_DTYPES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7}
_DTYPES |= {"bool": 11, "bfloat16": 15}
_GLOBALS = {
    "__builtins__": {"len": len},
    "is_grad_enabled": torch.is_grad_enabled,
    **{name: getattr(torch, name) for name in _DTYPES},
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, bool, bool]] = {  # the word, whether the sides change, whether negated
    ast.Eq: ("==", False, False),
    ast.NotEq: ("==", False, True),
    ast.Lt: ("<", False, False),
    ast.LtE: ("<=", False, False),
    ast.Gt: ("<", True, False),
    ast.GtE: ("<=", True, False),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, Any]] = {ast.Add: ("+", operator.add), ast.Mult: ("*", operator.mul)}
_METHODS = {"dim": "dim", "numel": "numel", "is_contiguous": "contiguous"}
_ATTRIBUTES = {"dtype": "dtype", "requires_grad": "requires_grad"}
_DEEPEST = 16  # expressions inside one another, for which condition.h has room
_FORMS = (
    "arguments, numbers, x.dtype, x.shape[0], x.stride(0), x.dim(), x.numel(), x.is_contiguous(), x.requires_grad, "
    "x is None, len(sizes), sizes[0], is_grad_enabled(), dtypes such as float32, + * ** of numbers, comparisons, in, "
    "and, or, not"
)


class Condition:
    """One condition on the arguments of a call.

    Args:
        text: the expression, such as ``"x.dtype in (float32, bfloat16)"``.
        arguments: the names of the operator's arguments, in the schema's order.

    Attributes:
        text: as given.
        native: the same for the native library (``csrc/foreign/condition.h``).

    Raises:
        ValueError: it has something else than what is supported, which the message lists, or is nested too deeply.
    """

    def __init__(self, text: str, arguments: Sequence[str]) -> None:
        self.text = text
        self._arguments = {name: position for position, name in enumerate(arguments)}
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError as error:
            raise ValueError(f"the condition {text!r} is not an expression: {error.msg}") from None
        if _depth(tree.body) > _DEEPEST:
            raise ValueError(
                f"the condition {text!r} is nested more than {_DEEPEST} deep; give it as several conditions"
            )
        self.native = self._words(tree.body)
        self._code = compile(tree, "<condition>", "eval")

    def holds(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call meets it. What cannot be evaluated, such as the dtype of None, does not."""
        try:
            return bool(eval(self._code, _GLOBALS, dict(arguments)))  # noqa: S307  # of a form that was checked
        except (AttributeError, IndexError, TypeError):
            return False

    def _words(self, node: ast.expr) -> str:
        constant = _constant(node)
        if constant is not None:
            return f"number {constant}"
        if isinstance(node, ast.BoolOp):
            word = "and" if isinstance(node.op, ast.And) else "or"
            return _joined(word, [self._words(value) for value in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"not {self._words(node.operand)}"
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return f"{_ARITHMETIC[type(node.op)][0]} {self._words(node.left)} {self._words(node.right)}"
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            return _joined("and", [self._comparison(*one) for one in zip(sides, node.ops, sides[1:], strict=False)])
        if isinstance(node, ast.Name) and node.id in _DTYPES:
            return f"number {_DTYPES[node.id]}"
        return self._of_argument(node)

    def _comparison(self, left: ast.expr, comparison: ast.cmpop, right: ast.expr) -> str:
        if isinstance(comparison, (ast.Is, ast.IsNot)) and isinstance(right, ast.Constant) and right.value is None:
            none = f"none {self._position(left)}"
            return none if isinstance(comparison, ast.Is) else f"not {none}"
        if isinstance(comparison, (ast.In, ast.NotIn)) and isinstance(right, ast.Tuple):
            found = _joined("or", [f"== {self._words(left)} {self._words(one)}" for one in right.elts])
            return found if isinstance(comparison, ast.In) else f"not {found}"
        if type(comparison) not in _COMPARISONS:
            raise self._refusal(left)
        word, changes, is_negated = _COMPARISONS[type(comparison)]
        first, second = (right, left) if changes else (left, right)
        return f"{'not ' if is_negated else ''}{word} {self._words(first)} {self._words(second)}"

    def _of_argument(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return f"scalar {self._position(node)}"
        if isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
            return f"{_ATTRIBUTES[node.attr]} {self._position(node.value)}"
        if isinstance(node, ast.Subscript) and isinstance(index := _constant(node.slice), int):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
                return f"size {self._position(node.value.value)} {index}"
            return f"item {self._position(node.value)} {index}"
        if isinstance(node, ast.Call) and not node.keywords:
            return self._of_call(node)
        raise self._refusal(node)

    def _of_call(self, node: ast.Call) -> str:
        called, given = node.func, node.args
        if isinstance(called, ast.Name) and called.id == "len" and len(given) == 1:
            return f"len {self._position(given[0])}"
        if isinstance(called, ast.Name) and called.id == "is_grad_enabled" and not given:
            return "grad_mode"
        if isinstance(called, ast.Attribute) and called.attr in _METHODS and not given:
            return f"{_METHODS[called.attr]} {self._position(called.value)}"
        if isinstance(called, ast.Attribute) and called.attr == "stride" and len(given) == 1:
            index = _constant(given[0])
            if isinstance(index, int):
                return f"stride {self._position(called.value)} {index}"
        raise self._refusal(node)

    def _position(self, node: ast.expr) -> int:
        if isinstance(node, ast.Name) and node.id in self._arguments:
            return self._arguments[node.id]
        raise self._refusal(node)

    def _refusal(self, node: ast.expr) -> ValueError:
        return ValueError(
            f"the condition {self.text!r} has {ast.unparse(node)!r}, which is not supported; supported are {_FORMS}; "
            f"arguments are {', '.join(self._arguments)}"
        )


def _depth(node: ast.expr) -> int:
    inside = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    return 1 + max(map(_depth, inside), default=0)


def _constant(node: ast.expr) -> int | float | None:
    """The number that an expression without arguments stands for; None if it is another."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        return int(node.value) if isinstance(node.value, bool) else node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp):
        left, right = _constant(node.left), _constant(node.right)
        power = isinstance(node.op, ast.Pow)
        function = operator.pow if power else _ARITHMETIC.get(type(node.op), ("", None))[1]
        if left is not None and right is not None and function is not None:
            result: int | float = function(left, right)
            return result
    return None


def _joined(word: str, parts: Sequence[str]) -> str:
    """``a and b and c`` as ``and a and b c``."""
    return parts[0] if len(parts) == 1 else f"{word} {parts[0]} {_joined(word, parts[1:])}"
