"""Checks what a plugin says of itself: each field's type and size, with an example of a right value in the message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from ..text import describe_value
from .errors import InvalidBackendError

MAX_TEXT = 4096
MAX_ITEMS = 10_000

Take = Callable[[Any], Any]

INVARIANCES = ("batch", "prefix", "threads", "layout", "compiled", "grad", "repeat", "order")
"""What an operator may claim that the bits of its results do not depend on, as ``Operator(invariant=...)`` says."""

ALL = "*"
NAME = "a name of letters, digits, '_', '-' and '.', 100 at most"


class NotTakenError(Exception):
    """A value is not what it should be; the text says what is expected."""

    code = None  # caught here: no caller sees it


class Field:
    """A field of a record: what takes its value, and an example of one, in Python."""

    def __init__(self, take: Take, example: str) -> None:
        self.take = take
        self.example = example


class Record:
    """What a plugin says of itself, which cannot be changed: ``fields`` by their names.

    Not a dataclass: making two of them would be a fortieth of the operator library's import.
    """

    fields: ClassVar[Mapping[str, Field]]
    required: ClassVar[tuple[str, ...]] = ()  # fields of what a hook returns

    @classmethod
    def example(cls, name: str) -> str:
        """One of them as it is written in Python, with the fields that it must have."""
        required = {one: cls.fields[one].example for one in cls.required} | {"name": f'"{name}"'}
        return f"{cls.__name__}({', '.join(f'{field}={value}' for field, value in required.items())})"

    def _take(self, code: str, title: str, **given: object) -> None:
        """Check the values of all fields, and keep them.

        Raises:
            InvalidBackendError: with that code and title, naming the field, its value and what is expected.
        """
        for name, field in self.fields.items():
            try:
                object.__setattr__(self, name, field.take(given[name]))
            except NotTakenError as error:
                problem = f"{title}: field {name} is {describe_value(given[name])}, expected {error}"
                fix = f"write {name}={field.example} in the {title.partition('(')[0]}, or the like: {error}"
                raise InvalidBackendError(code, problem, fix) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: give {name}= when you make it")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: it keeps its {name}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"


def fix_in(error: BaseException) -> str:
    """What a record that is not valid says about putting it right; empty for other exceptions."""
    return error.fix if isinstance(error, InvalidBackendError) else ""


def is_name(text: str) -> bool:
    """Whether one can write it in plugins.toml, in an environment variable and on a command line."""
    letters = text.replace("_", "").replace(".", "").replace("-", "")  # a pattern would take longer to compile
    return len(text) <= 100 and text.isascii() and letters.isalnum() and text[0].isalnum()


def take_name(value: Any) -> str:
    """A text that is a name."""
    if not isinstance(value, str) or not is_name(value):
        raise NotTakenError(f"str: {NAME}")
    return str.__str__(value)


def take_name_or_all(value: Any) -> str:
    """A text that is a name, or ``"*"`` for all that there are."""
    return ALL if value == ALL else take_name(value)


def take_text(value: Any) -> str:
    """A text that is not too long."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise NotTakenError(f"str of {MAX_TEXT} characters at most")
    return str.__str__(value)  # of a member of an enumeration, str() would say its name


def take_bool(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise NotTakenError("bool")
    return value


def take_integer(value: Any) -> int:
    """An integer of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or value.bit_length() > 63:
        raise NotTakenError("int of 64 bits at most")
    return int(value)


def take_path(value: Any) -> Path:
    """An absolute path: a relative one would mean another file in another working directory."""
    path = Path(take_text(str(value) if isinstance(value, Path) else value))
    if not path.is_absolute():
        raise NotTakenError("an absolute path")
    return path


def take_function(value: Any) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise NotTakenError("a function")
    return value


def take_invariance(value: Any) -> str:
    """One of :data:`INVARIANCES`."""
    if not isinstance(value, str) or value not in INVARIANCES:
        raise NotTakenError(f"one of {', '.join(INVARIANCES)}")
    return str.__str__(value)


def mapping_of(take_key: Take, take_value: Take, expected: str) -> Take:
    """Makes a mapping that cannot be changed of a dict."""

    def take_mapping(value: Any) -> Mapping[Any, Any]:
        if not isinstance(value, (dict, MappingProxyType)) or len(value) > MAX_ITEMS:
            raise NotTakenError(f"{expected}, {MAX_ITEMS} at most")
        try:
            return MappingProxyType({take_key(key): take_value(one) for key, one in value.items()})
        except NotTakenError as error:
            raise NotTakenError(f"{expected}: {error}") from None

    return take_mapping


def optional(take: Take) -> Take:
    """None, or what ``take`` accepts."""
    return lambda value: None if value is None else take(value)


def sequence_of(take: Take, plural: str) -> Take:
    """Makes a tuple of a list or tuple."""
    return _items(take, (list, tuple), f"a sequence of {plural}")


def collection_of(take: Take, plural: str) -> Take:
    """Makes a tuple of a list, tuple or set."""
    return _items(take, (list, tuple, set, frozenset), f"a collection of {plural}")


def _items(take: Take, kinds: tuple[Any, ...], expected: str) -> Take:
    def take_items(value: Any) -> tuple[Any, ...]:
        problem = NotTakenError(f"{expected}, {MAX_ITEMS} at most")
        if not isinstance(value, kinds) or len(value) > MAX_ITEMS:
            raise problem
        try:
            return tuple(map(take, value))
        except NotTakenError:
            raise problem from None

    return take_items
