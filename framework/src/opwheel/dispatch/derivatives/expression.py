"""What formulas consist of. Each kind of expression says how it is computed in Python, and how C++ is told of it.

A new kind is a class here, a case in :mod:`.text` that makes it, and, if the native Autograd library is to compute it,
an entry in the table of ``csrc/autograd/notation.cpp``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .names import Names

Value = bool | int | float | str | None

# For each property the attribute of a tensor in Python, and whether it is a method.
PROPERTIES = {
    "size": ("size", True),
    "sizes": ("shape", False),
    "numel": ("numel", True),
    "dim": ("dim", True),
    "scalar_type": ("dtype", False),
    "device": ("device", False),
    "layout": ("layout", False),
}

_INT64 = range(-(2**63), 2**63)
_INSTRUCTIONS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


class NotCarriedError(ValueError):
    """A formula that is computed in Python alone: C++ cannot be told of it."""

    code = None  # caught here: no caller sees it


class Expression(ABC):
    """A part of a formula.

    Attributes:
        parts: what it is computed from.
        place: where it begins in the formula's text: line, from 1, and column, from 0.
    """

    place = (1, 0)

    def __init__(self, *parts: Expression) -> None:
        self.parts = parts

    @abstractmethod
    def python(self, parts: Sequence[str], /) -> str:
        """It in Python, where ``parts`` are its parts in Python."""

    @abstractmethod
    def instruction(self, names: Names, /) -> str:
        """It in the notation of ``csrc/autograd/notation.h``, where its parts are what was described just before.

        Raises:
            NotCarriedError: the notation has no words for it.
        """


class Name(Expression):
    """What the formula is given.

    Attributes:
        name: of an argument, a result or a gradient: ``x``, ``result``, ``grad``, ``grads[0]`` ...
    """

    def __init__(self, name: str, parameter: str = "") -> None:
        super().__init__()
        self.name = name
        self._parameter = parameter

    def python(self, _parts: Sequence[str], /) -> str:
        return self._parameter

    def instruction(self, names: Names, /) -> str:
        return names.meaning(self.name)


class Property(Expression):
    """What is known of a tensor without its elements. That of an argument or a result is kept in place of the tensor.

    Attributes:
        what: a key of :data:`PROPERTIES`.
        dimension: whose size it is, for ``"size"``.
    """

    def __init__(self, what: str, dimension: int | None, tensor: Expression, parameter: str = "") -> None:
        super().__init__(tensor)
        self.what = what
        self.dimension = dimension
        self._parameter = parameter

    @property
    def name(self) -> str:
        """Of the tensor, where it has one; else empty."""
        (tensor,) = self.parts
        return tensor.name if isinstance(tensor, Name) else ""

    @property
    def key(self) -> str:
        """What formulas are given, of a tensor that has a name: the same for all spellings."""
        return f"{self.name}.{self.what}({'' if self.dimension is None else self.dimension})"

    def of(self, tensor: Any) -> Any:
        """The property of a tensor; None of None."""
        if tensor is None:
            return None
        attribute, is_called = PROPERTIES[self.what]
        found = getattr(tensor, attribute)
        return found(*self._dimensions) if is_called else found

    @property
    def _dimensions(self) -> tuple[int, ...]:
        return () if self.dimension is None else (self.dimension,)

    def python(self, parts: Sequence[str], /) -> str:
        if self._parameter:
            return self._parameter
        attribute, is_called = PROPERTIES[self.what]
        call = f"({', '.join(map(str, self._dimensions))})" if is_called else ""
        return f"{parts[0]}.{attribute}{call}"

    def instruction(self, _names: Names, /) -> str:
        return " ".join(["property", self.what, *map(str, self._dimensions)])


class Conjugate(Expression):
    """The complex conjugate of a tensor or number."""

    def python(self, parts: Sequence[str], /) -> str:
        return f"_conjugate({parts[0]})"

    def instruction(self, _names: Names, /) -> str:
        return "conjugate"


class Constant(Expression):
    """A number, a string, None, True or False.

    Attributes:
        value: of it.
        word: what the formula has for it if that could be a name as well, else empty.
    """

    def __init__(self, value: Value, word: str = "") -> None:
        super().__init__()
        self.value = value
        self.word = word

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, (int, float)) and not isinstance(self.value, bool)

    def python(self, _parts: Sequence[str], /) -> str:
        return repr(self.value)

    def instruction(self, _names: Names, /) -> str:
        match self.value:
            case None:
                return "none"
            case bool(value):
                return f"bool {int(value)}"
            case int(value) if value in _INT64:
                return f"int {value}"
            case float(value):
                return f"float {value!r}"
            case str(value) if value.isprintable():
                return f"string {value}"
        raise NotCarriedError(f"the native Autograd library has no constant {self.value!r}")


class Listed(Expression):
    """A list."""

    def python(self, parts: Sequence[str], /) -> str:
        return f"[{', '.join(parts)}]"

    def instruction(self, _names: Names, /) -> str:
        return f"list {len(self.parts)}"


class Negative(Expression):
    """A sign."""

    def python(self, parts: Sequence[str], /) -> str:
        return f"(-{parts[0]})"

    def instruction(self, _names: Names, /) -> str:
        return "negate"


class Arithmetic(Expression):
    """Of two tensors or numbers.

    Attributes:
        sign: one of ``+ - * /``.
    """

    def __init__(self, sign: str, left: Expression, right: Expression) -> None:
        super().__init__(left, right)
        self.sign = sign

    def python(self, parts: Sequence[str], /) -> str:
        return f"({parts[0]} {self.sign} {parts[1]})"

    def instruction(self, _names: Names, /) -> str:
        return _INSTRUCTIONS[self.sign]


class Call(Expression):
    """A call of an operator.

    Attributes:
        namespace: of the operator.
        is_own: whether that is the formula's own library, which need not be named.
        name: of the operator, without an overload: which one is meant follows from the arguments.
        in_place: of its in-place variant, by which C++ may overwrite the first argument; empty where it must not.
        positional: how many arguments are given by position.
        keywords: names of the others.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        arguments: list[Expression],
        keywords: dict[str, Expression],
        *,
        is_own: bool,
        in_place: str = "",
    ) -> None:
        super().__init__(*arguments, *keywords.values())
        self.namespace = namespace
        self.is_own = is_own
        self.name = name
        self.in_place = in_place
        self.positional = len(arguments)
        self.keywords = tuple(keywords)

    def python(self, parts: Sequence[str], /) -> str:
        by_name = map("{}={}".format, self.keywords, parts[self.positional :])
        operator = f"_own.{self.name}" if self.is_own else f"_torch.{self.namespace}.{self.name}"
        return f"{operator}({', '.join([*parts[: self.positional], *by_name])})"

    def instruction(self, _names: Names, /) -> str:
        instruction = "call_in_place" if self.in_place else "call"
        return " ".join([instruction, f"{self.namespace}::{self.name}", str(self.positional), *self.keywords])

    def fits(self, schema: Any) -> bool:
        """Whether an operator with that schema takes these arguments."""
        plain = [argument.name for argument in schema.arguments if not argument.kwarg_only]
        given = {*plain[: self.positional], *self.keywords}
        known = {argument.name for argument in schema.arguments}
        return (
            self.positional <= len(plain)
            and {*self.keywords} <= known - {*plain[: self.positional]}
            and all(argument.name in given or argument.has_default_value() for argument in schema.arguments)
        )


def walk(expression: Expression) -> Iterator[Expression]:
    """All parts in the order in which they are computed, the expression last."""
    for part in expression.parts:
        yield from walk(part)
    yield expression


def in_python(expression: Expression) -> str:
    """The expression as Python computes it."""
    return expression.python([in_python(part) for part in expression.parts])
