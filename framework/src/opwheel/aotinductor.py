"""Models compiled by AOTInductor: calls of kernels, and of a backend's C functions instead of the dispatcher."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .dispatch import inductor
from .dispatch.opening import Library
from .dispatch.overload import Overload
from .registry import BackendStatus, State

_C_TYPES = {"Tensor": "AtenTensorHandle", "float": "double"}


@contextmanager
def keep_kernels(library: Library) -> Iterator[None]:
    """Compile models that call the library's kernels: inductor would write element-wise operators into its own loops.

    It is for compiling alone, in one thread: ``with keep_kernels(waves.library): aoti_compile_and_package(...)``.
    ``compile = "kernel"`` in the policy says the same for a whole process.

    Args:
        library: whose operators are kept.
    """
    with inductor.kept(library.overloads.values()):
        yield


def c_shims(library: Library, device_type: str) -> dict[Any, list[str]]:
    """The C declarations of the kernels of a device's backends, by operator.

    Each operator has the function of the backend that serves it. Beside a backend in C++ there may be one in Python,
    whose operators have none: the model calls them through the dispatcher.

    They are the value of the inductor option ``aot_inductor.custom_ops_to_c_shims``, for operators that are kept
    (:func:`keep_kernels`). A model compiled with it looks the functions up when it is loaded, so that the library has
    to be open with its symbols visible to all: this call does it for the Python process, ``opwheel::load``
    (``opwheel/load.h``) for a C++ program.

    Args:
        library: whose operators the model calls.
        device_type: of the loaded backends: ``"cpu"``.

    Raises:
        BackendUnavailableError: no backend for the device is loaded.
        ValueError: one in C++ lacks C functions, or the only ones are in Python.
    """
    backends = [status for status in library.backends().values() if status.device_type == device_type]
    loaded = [status for status in backends if status.state is State.LOADED]
    if not loaded:
        library.require(backends[0].name if backends else device_type)  # which raises, with the reason
    compiled = [status for status in loaded if status.library is not None] or loaded
    return {op: [text] for status in compiled for op, text in _exported(library, status).items()}


def _exported(library: Library, backend: BackendStatus) -> dict[Any, str]:
    """The declarations of a backend's kernels, whose library is then open for all.

    Raises:
        ValueError: it exports no C functions.
    """
    overloads = [
        overload for name, overload in library.overloads.items() if name in backend.operators and not overload.mutates
    ]
    exported = None if backend.library is None else ctypes.CDLL(str(backend.library), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    missing = [one.name for one in overloads if not hasattr(exported, _symbol(one, backend.device_type))]
    if missing:
        raise ValueError(
            f"the backend {backend.name!r} exports no C functions of {', '.join(missing)}; compile the model without "
            "custom_ops_to_c_shims: its operators are then called through the dispatcher"
        )
    return {one.op: _declaration(one, backend.device_type) for one in overloads}


def _declaration(overload: Overload, device_type: str) -> str:
    """The function's address, by the name that the library exports and by the one that inductor writes into calls.

    Inductor's has no namespace: two operators that have the same one cannot be in one model, because a name cannot be
    defined twice.
    """
    parameters = [f"{_C_TYPES[str(argument.type)]} {argument.name}" for argument in overload.schema.arguments]
    parameters += [f"AtenTensorHandle* ret{number}" for number in range(len(overload.schema.returns))]
    symbol = _symbol(overload, device_type)
    function = f"aoti_torch_{device_type}_{overload.name}"
    return f"AOTITorchError (*const {symbol})({', '.join(parameters)}); constexpr auto& {function} = {symbol}"


def _symbol(overload: Overload, device_type: str) -> str:
    """``waves::cpu::aoti_torch_cpu_axpby<digest>::function``, as C++ compilers mangle it.

    With the digest a model that was compiled for another schema cannot be loaded: it would find a function that takes
    other arguments (``opwheel/detail/c_shim.h``).
    """
    names = (overload.namespace, device_type, f"aoti_torch_{device_type}_{overload.name}")
    return f"_ZN{''.join(f'{len(name)}{name}' for name in names)}ILj{_digest_of_call(overload)}EE8functionE"


def _digest_of_call(overload: Overload) -> int:
    """32 bits of FNV-1a of the arguments' types and names and the number of results."""
    arguments = "".join(f"{argument.type} {argument.name}, " for argument in overload.schema.arguments)
    digest = 2166136261
    for byte in f"{arguments}->{' Tensor' * len(overload.schema.returns)}".encode():
        digest = (digest ^ byte) * 16777619 % 2**32
    return digest
