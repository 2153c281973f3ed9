"""Calls of an operator that its tests, the conformance kit and the benchmarks make, and how near results are to be."""

from __future__ import annotations

from typing import Any, NamedTuple


class Tolerance(NamedTuple):
    """How far a value may be from the reference's: ``atol + rtol * |reference|``."""

    rtol: float
    atol: float


class Sample:
    """One call: positional and keyword arguments of the schema.

    Args:
        *args: the arguments; tensors are on the device and of the dtype that the samples were asked for.
        name: shown in the names of tests.
        **kwargs: keyword-only arguments.
    """

    def __init__(self, *args: Any, name: str = "", **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.name = name

    def __repr__(self) -> str:
        given = [*map(_shown, self.args), *(f"{name}={_shown(value)}" for name, value in self.kwargs.items())]
        return f"({', '.join(given)})"


class ErrorSample(NamedTuple):
    """A call that must raise.

    Args:
        sample: the call.
        error: the class of the exception; several, where kernel and reference differ in it.
        match: a regular expression that is found in its message.
        by_values: what is wrong are values in tensors, such as an index out of range. An accelerator finds that out
            while its kernels run, after the call, and the process cannot use it any more (CUDA's device-side
            assertions); so the conformance kit makes these calls in a process of their own there, and ``match`` is not
            looked for.
    """

    sample: Sample
    error: type[Exception] | tuple[type[Exception], ...]
    match: str = ""
    by_values: bool = False


def _shown(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)
