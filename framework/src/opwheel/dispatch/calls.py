"""Functions in C++ that call an operator: as PyTorch's own behind ``torch.ops`` do, in less time for small tensors.

``csrc/calls`` has their source. Like native Autograd it is built for each minor release of PyTorch. Where
there is none for the installed one, and with ``OPWHEEL_AUTOGRAD=python``, PyTorch's own function makes the call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from .._torch import private
from .._torch.native import library_file

# Maps PyTorch's function to the one in C++ that calls the same operator, and that one to itself.
_functions: dict[Callable[..., Any], Callable[..., Any]] = {}


def function(op: Any) -> Callable[..., Any]:
    """A function that calls ``op``, an overload of ``torch.ops``, with all its arguments in the schema's order.

    Other calls, and those that tensor subclasses or modes of torch function are to see, it hands to PyTorch's own
    function. That one it is itself where there is no native library, or an argument or result is a list, a string or
    another type than tensors, numbers and bool.
    """
    current = private.operation(op)
    if current in _functions:
        return _functions[current]
    library = _library()
    if isinstance(library, str):
        return current
    schema = private.schema(op)
    made: Callable[..., Any] | None = library.opwheel_calls_function(
        schema.name.encode(), schema.overload_name.encode(), current
    )
    if made is None:
        return current
    made.__module__ = op.__module__
    made = _functions.setdefault(current, made)  # another thread may have made one meanwhile
    _functions[made] = made
    return made


def install(op: Any) -> None:
    """Let ``op`` itself call :func:`function`, so that ``torch.ops`` is as quick as the public functions are.

    For an overload that nobody has put into a dict yet: its hash is that of the function it calls.
    """
    private.set_operation(op, function(op))


def why_not() -> str:
    """Why PyTorch's own functions make the calls; empty if those in C++ do."""
    library = _library()
    return library if isinstance(library, str) else ""


@cache
def _library() -> ctypes.PyDLL | str:
    """The native library, or why there is none."""
    if os.environ.get("OPWHEEL_AUTOGRAD") == "python":
        return "OPWHEEL_AUTOGRAD=python"
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        # The limited API's objects and locking are those of a CPython with the lock, even where it has one switched on.
        return "the native library is for CPython with its global lock, and this Python is built without"
    path = library_file("calls")
    if isinstance(path, str):
        return path
    try:
        library = ctypes.PyDLL(str(path))  # keeps Python's lock, which the library's functions expect
    except OSError as error:
        return str(error)
    library.opwheel_calls_is_as_expected.argtypes = [ctypes.py_object, ctypes.c_void_p]
    tensor = torch.empty(0)
    address = private.tensor_address(tensor)
    if address is None or not library.opwheel_calls_is_as_expected(tensor, address):
        return f"objects of torch.Tensor in torch {torch.__version__} do not begin as the native library takes them to"
    library.opwheel_calls_function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.py_object]
    library.opwheel_calls_function.restype = ctypes.py_object
    return library
