"""What kernels on the C++ SDK call (``opwheel/call.h``): whether it fits this process, and how they reach it."""

from __future__ import annotations

import ctypes
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .._once import once
from .._torch.native import open_library
from .._torch.private import below_autograd_and_autocast, parse_schema, schema_of


def misfit(written: str) -> str:
    """What is wrong with a call that a library's kernels make, for people; empty if nothing is.

    Arguments are matched by their names, and one that the call does not have has to have a default: what
    ``opwheel/detail/call_plan.h`` asks for at the first call. An operator that nobody has defined is left
    to that: it may be defined later.

    Args:
        written: the schema that the call was written for, with the namespace.
    """
    here = schema_of(written.partition("(")[0])
    if here is None:
        return ""
    call = parse_schema(written)
    given = {argument.name: type_of(argument) for argument in call.arguments}
    there = {argument.name: type_of(argument) for argument in here.arguments}
    missing = [one.name for one in here.arguments if one.name not in given and not _can_be_filled_in(one)]
    unknown = [name for name in given if name not in there]
    other = [name for name in given if name in there and given[name] != there[name]]
    wrong = [
        *(f"it has no argument {name!r}" for name in unknown),
        *(f"the call has no {name!r}, which has no default that can be filled in" for name in missing),
        *(f"{name!r} is of another type" for name in other),
    ]
    if list(map(type_of, call.returns)) != list(map(type_of, here.returns)):
        wrong.append("the results are others")
    return f"calls {written!r}, which does not fit the operator in this process, '{here}': {wrong[0]}" if wrong else ""


def _can_be_filled_in(argument: Any) -> bool:
    kind = type_of(argument)[0].removeprefix("Optional[").removeprefix("List[").rstrip("]")
    known = argument.default_value is None or kind in {"float", "int", "bool", "str"}
    return bool(argument.has_default_value()) and known


def type_of(one: Any) -> tuple[str, bool]:
    """What kernels know of an argument's or a result's type: which it is, and whether it is written."""
    return str(one.real_type).replace("SymInt", "int"), one.alias_info is not None and one.alias_info.is_write


def connect(library: ctypes.CDLL) -> None:
    """Give an open library what its kernels need to call other operators. It must have ``opwheel_set_dispatcher``."""
    library.opwheel_set_dispatcher(*_functions())


@cache
def _functions() -> tuple[Any, Any, Any]:
    """The functions of the native library, or, where there is none for this PyTorch, the same in Python."""
    native = open_library("autograd")
    if isinstance(native, str):
        return functions_in_python()
    return native.opwheel_dispatcher_schema, native.opwheel_dispatcher_call, _last_error()


_SchemaOf = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
_Call = ctypes.CFUNCTYPE(
    *(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
)
_FAILURE, _OTHER_SCHEMA = 1, 2  # opwheel/call.h


@once
def functions_in_python() -> tuple[Any, Any, Any]:
    """The functions without a native library; they live as long as the process."""
    return _SchemaOf(_schema), _Call(_call), _last_error()


def _schema(name: bytes) -> int | None:
    here = schema_of(name.decode())
    if here is None:
        return None
    # Two threads may ask at a time: both get the address of what is kept.
    return ctypes.addressof(_texts.setdefault(str(here), ctypes.create_string_buffer(str(here).encode())))


# In memory that C code has the addresses of, as long as the process lives.
_texts: dict[str, ctypes.Array[ctypes.c_char]] = {}


def _call(name: bytes, overload: bytes, stack: int, argument_count: int, built_with: int) -> int:
    try:
        here = schema_of(b".".join(filter(None, (name, overload))).decode())
        if here is None or len(here.arguments) != argument_count:
            return _OTHER_SCHEMA
        dispatch = _libtorch().torch_call_dispatcher
        with below_autograd_and_autocast():
            return int(dispatch(name, overload, ctypes.c_void_p(stack), ctypes.c_uint64(built_with)))
    except BaseException:  # no exception may pass through C
        traceback.print_exc()
        return _FAILURE


def _last_error() -> Any:
    """PyTorch's function that tells the last error in words; None before torch 2.13."""
    return getattr(_libtorch(), "torch_exception_get_what_without_backtrace", None)


@cache
def _libtorch() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
