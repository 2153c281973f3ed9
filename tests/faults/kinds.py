"""Wrong values and exceptions, for plugins of the fault tests: it lies beside them on sys.path.

Each function makes a wrong value of one that would be right.
"""

import itertools


def other_object(_value):
    """Of a class that no field has, and that cannot be shown."""
    return _Mute()


class _Mute:
    def __repr__(self):
        raise KeyError


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


def not_a_number(_value):
    """Which is no integer either."""
    return float("nan")


def infinite(_value):
    """Which no integer is."""
    return float("inf")


def same(value):
    """The right one."""
    return value


WRONG = (other_object, generator, too_big, deep, number, not_a_number, infinite)


# ---- exceptions ------------------------------------------------------------------------------------------------------


class TextExitsError(BaseException):
    def __str__(self):
        raise SystemExit("no text")

    __repr__ = __str__


class TextIsNoneError(Exception):
    def __str__(self):
        return None


EXCEPTIONS = {
    "exit": SystemExit(3),
    "generator exit": GeneratorExit(),
    "stop": StopIteration("stop"),
    "recursion": RecursionError("deep"),
    "memory": MemoryError(),
    "text exits": TextExitsError(),
    "text is None": TextIsNoneError(),
    "text is huge": ValueError("x" * 10**7),
}
