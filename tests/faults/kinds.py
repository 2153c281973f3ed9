"""Hostile values, for plugins of the fault tests: it lies beside them on sys.path.

Each function makes one of a value that would be right. ``HARMLESS`` are those that still are that value to whoever
takes it by the built-in class alone; whoever calls one of their methods ends the process, or never returns.
"""

import itertools

# What Python needs to make an object, and to hand out its methods.
_KEPT = {"__new__", "__init__", "__class__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__setattr__"}


def _exits(*_args, **_kwargs):
    raise SystemExit("hostile")


def _endless(*_args, **_kwargs):
    return itertools.repeat("muladd")


def _subclass(value, behaviour, **methods):
    base = type(value)
    if base not in (str, int, list, tuple, set, frozenset, dict):
        return value  # bool, None, functions and paths have no such subclasses
    names = {name for name in dir(base) if callable(getattr(base, name))} - _KEPT
    kind = type("Evil", (base,), {**dict.fromkeys(names, behaviour), **methods})
    return kind(value)


def exits(value):
    """Every method ends the process."""
    return _subclass(value, _exits)


def never_ends(value):
    """Iterating goes on for ever, and it is equal to everything and as long as it likes."""
    return _subclass(value, _exits, __iter__=_endless, __eq__=lambda *_: True, __len__=lambda _: 10**9)


def claims_another_class(value):
    """``isinstance`` believes it."""
    return _subclass(value, _exits, __class__=property(lambda _: bytes))


def items_exit(value):
    """What is in a collection is hostile, too."""
    return [exits(item) for item in value] if isinstance(value, list) else exits(value)


class _Object:
    def __getattribute__(self, name):
        raise SystemExit("hostile")

    __eq__ = __hash__ = __len__ = __iter__ = __index__ = __int__ = __str__ = __repr__ = _exits
    __fspath__ = __bool__ = __format__ = __getitem__ = __contains__ = _exits


def other_object(_value):
    """Has nothing but methods that end the process."""
    return _Object()


def poses_as(value):
    """Says that it is of the class that is expected."""

    class Poser(_Object):
        __class__ = property(lambda _: type(value))
        __getattribute__ = object.__getattribute__

    return Poser()


def generator(_value):
    """Never ends."""
    return itertools.count()


def too_big(value):
    """Of the right class and far too much of it."""
    return "x" * 10**6 if isinstance(value, str) else value * 10**5 if isinstance(value, list) else 10**5000


def deep(_value):
    """Lists within lists."""
    value = []
    for _ in range(10**5):
        value = [value]
    return value


def number(_value):
    """Of no class that a field has, nearly."""
    return 1.5


class Metaclass(type):
    """Whose classes cannot even be named."""

    def __getattribute__(cls, name):
        raise SystemExit("hostile")

    __repr__ = __instancecheck__ = __subclasscheck__ = _exits


class _Nameless(metaclass=Metaclass):
    pass


def nameless(_value):
    """An object of such a class."""
    return object.__new__(_Nameless)


HARMLESS = (exits, never_ends, claims_another_class, items_exit)
WRONG = (other_object, poses_as, generator, too_big, deep, number, nameless)


# ---- exceptions ------------------------------------------------------------------------------------------------------


class TextExitsError(BaseException):
    __str__ = __repr__ = _exits


class TextIsEvilError(Exception):
    def __str__(self):
        return exits("evil")


class TextIsNoneError(Exception):
    def __str__(self):
        return None


class PosesAsInterruptError(Exception):
    __class__ = property(lambda _: KeyboardInterrupt)


class OwnCauseError(Exception):
    __cause__ = __context__ = __traceback__ = property(_exits, lambda *_: None)
    args = property(_exits)


class TruthlessError(Exception):
    __bool__ = __len__ = __eq__ = __hash__ = _exits


EXCEPTIONS = {
    "exit": SystemExit(3),
    "generator exit": GeneratorExit(),
    "stop": StopIteration("stop"),
    "recursion": RecursionError("deep"),
    "memory": MemoryError(),
    "text exits": TextExitsError(),
    "text is evil": TextIsEvilError(),
    "text is None": TextIsNoneError(),
    "text is huge": ValueError("x" * 10**7),
    "poses as interrupt": PosesAsInterruptError("not from the keyboard"),
    "own cause": OwnCauseError(),
    "truthless": TruthlessError("neither"),
}
