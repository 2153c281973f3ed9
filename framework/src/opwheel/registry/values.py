"""Takes values out of what a plugin handed over, once and as exact built-in types.

A subclass of ``int``, ``str`` or ``list`` may answer differently each time, raise ``SystemExit`` or never end. So none
of a value's own methods is called, but those of the built-in class, which read the object's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..text import describe_value
from .errors import InvalidBackendError

MAX_TEXT = 4096
MAX_ITEMS = 10_000

Take = Callable[[Any], Any]

NAME = "a name of letters, digits, '_', '-' and '.', 100 at most"


class NotTakenError(Exception):
    """A value is not what it should be; the text says what is expected."""


def is_a(value: object, kind: type) -> bool:
    """Whether its class says so. ``isinstance`` would go on to ask the value's own ``__class__``."""
    return issubclass(type(value), kind)


class Field(NamedTuple):
    """A field of a record: what takes its value, and an example of one, in Python."""

    take: Take
    example: str


class Record:
    """What a plugin says of itself: ``fields`` by their names.

    Not a dataclass: making two of them would be a fortieth of the operator library's import.
    """

    fields: ClassVar[Mapping[str, Field]]
    required: ClassVar[tuple[str, ...]] = ()  # fields of what a hook returns

    @classmethod
    def example(cls, name: str) -> str:
        """One of them as it is written in Python, with the fields that it must have."""
        required = {one: cls.fields[one].example for one in cls.required} | {"name": f'"{name}"'}
        return f"{cls.__name__}({', '.join(f'{field}={value}' for field, value in required.items())})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"


AnyRecord = TypeVar("AnyRecord", bound=Record)


def take_record(kind: type[AnyRecord], record: object) -> AnyRecord:
    """A new record with what the fields of this one, of that kind, hold now: they may have been changed since.

    Raises:
        InvalidBackendError: a field has the wrong type.
        BaseException: what a subclass raises instead of handing out a field.
    """
    return kind(**{name: object.__getattribute__(record, name) for name in kind.fields})


def take_fields(record: object, fields: Mapping[str, Field], code: str, title: str) -> dict[str, Any]:
    """Replace what a record's fields hold by exact values.

    Returns:
        The values by name: a subclass may give others when it is asked again.

    Raises:
        InvalidBackendError: with that code and title, naming the field, its value and what is expected.
    """
    taken = {}
    for name, field in fields.items():
        value = getattr(record, name)
        try:
            taken[name] = field.take(value)
        except NotTakenError as error:
            problem = f"{title}: field {name} is {describe_value(value)}, expected {error}"
            fix = f"write {name}={field.example} in the {title.partition('(')[0]}, or the like: {error}"
            raise InvalidBackendError(code, problem, fix) from None
        setattr(record, name, taken[name])
    return taken


def fix_in(error: BaseException) -> str:
    """What a record that is not valid says about putting it right; empty for other exceptions, a plugin's own too."""
    fix = error.fix if type(error) is InvalidBackendError else ""
    return fix if type(fix) is str else ""


def is_name(text: str) -> bool:
    """Whether one can write it in plugins.toml, in an environment variable and on a command line."""
    letters = text.replace("_", "").replace(".", "").replace("-", "")  # a pattern would take longer to compile
    return len(text) <= 100 and text.isascii() and letters.isalnum() and text[0].isalnum()


def take_name(value: Any) -> str:
    """A text that is a name."""
    if not is_a(value, str) or not is_name(name := str.__str__(value)):
        raise NotTakenError(f"str: {NAME}")
    return name


def take_text(value: Any) -> str:
    """A text that is not too long."""
    if not is_a(value, str) or str.__len__(value) > MAX_TEXT:
        raise NotTakenError(f"str of {MAX_TEXT} characters at most")
    return str.__str__(value)


def take_bool(value: Any) -> bool:
    """True or False."""
    if type(value) is not bool:
        raise NotTakenError("bool")
    return value


def take_integer(value: Any) -> int:
    """An integer of 64 bits."""
    if type(value) is bool or not is_a(value, int) or int.bit_length(value) > 63:
        raise NotTakenError("int of 64 bits at most")
    return int.__int__(value)


def take_path(value: Any) -> Path:
    """An absolute path: a relative one would mean another file in another working directory."""
    path = Path(take_text(str(value) if type(value) is type(Path()) else value))
    if not path.is_absolute():
        raise NotTakenError("an absolute path")
    return path


def take_function(value: Any) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise NotTakenError("a function")
    return value


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
        for kind in kinds:
            if is_a(value, kind) and kind.__len__(value) <= MAX_ITEMS:
                try:
                    return tuple(take(item) for item in islice(kind.__iter__(value), MAX_ITEMS))
                except NotTakenError:
                    break
        raise NotTakenError(f"{expected}, {MAX_ITEMS} at most")

    return take_items
