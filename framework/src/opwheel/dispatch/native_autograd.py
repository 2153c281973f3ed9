"""Autograd in C++: gives operators' derivatives to the native Autograd library that was built for this PyTorch.

``csrc/autograd`` has its source. libtorch's C++ interface changes with every minor release, so there is one
library for each, and one is taken for exactly the release it was built for. Where none is, and for operators whose
derivatives are Python functions, the kernel at the Autograd key is :mod:`.autograd`: slower, and the same in everything
else.

``OPWHEEL_AUTOGRAD=python`` leaves the native library alone, ``OPWHEEL_AUTOGRAD=native`` is an error without one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain, count
from typing import Any

import torch

from .._torch import private
from .._torch.native import open_library
from .derivatives import Derivatives
from .derivatives.expression import NotCarriedError
from .derivatives.notation import describe, document
from .overload import Overload

_MESSAGE_BYTES = 2000

_kept: list[torch.library.Library] = []  # references of operators that were replaced


class NativeAutograd:
    """The registrations of one operator library in the native Autograd library; :meth:`remove` takes them back.

    Args:
        derivatives: of each overload that has tensors.

    Attributes:
        operators: names of the overloads that have native kernels.
        refused: for each other overload the reason.
    """

    def __init__(self, derivatives: Iterable[Derivatives]) -> None:
        self.operators: set[str] = set()
        self.refused: dict[str, str] = {}
        self._handles: list[int] = []
        self._references: torch.library.Library | None = None
        library = _library()
        try:
            for one in derivatives:
                problem = library if isinstance(library, str) else self._register(library, one)
                if problem:
                    self.refused[one.overload.name] = problem
                else:
                    self.operators.add(one.overload.name)
        except BaseException:
            self.remove()
            raise

    def remove(self, *, keeps_references: bool = False) -> None:
        """Undo the registrations.

        Args:
            keeps_references: where graphs may have been recorded, which call them.
        """
        library = _library()
        for handle in self._handles:
            library.opwheel_autograd_remove(handle)  # type: ignore[union-attr]
        self._handles.clear()
        if self._references is None:
            return
        if keeps_references:
            _kept.append(self._references)
        else:
            private.destroy_library(self._references)

    def _register(self, library: ctypes.CDLL, derivatives: Derivatives) -> str:
        """The reason why it cannot be registered; empty if it is."""
        overload = derivatives.overload
        reference = f"{_references(overload)}::{_free_name(overload)}"
        recorded = f"{reference}_recorded" if overload.operator.training else None
        try:
            description = describe(derivatives, reference, recorded)
        except NotCarriedError as reason:
            return str(reason)
        self._define_reference(overload, reference)
        if recorded is not None:
            self._define_recorded(overload, recorded)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        handle = library.opwheel_autograd_register(document([description]).encode(), message, _MESSAGE_BYTES)
        if not handle:
            return message.value.decode(errors="replace")
        self._handles.append(handle)
        return ""

    def _define_reference(self, overload: Overload, name: str) -> None:
        """An operator in ATen operators, which the native kernel calls where PyTorch has to see inside."""

        def reference(*args: Any, **kwargs: Any) -> Any:
            from .autograd import decomposed  # most programs never get here, and importing a library is to be quick

            return decomposed(overload, overload.bind(args, kwargs))

        self._define(overload, name, reference)

    def _define_recorded(self, overload: Overload, name: str) -> None:
        """An operator that calls the one for training, which the native kernel calls where a gradient is recorded."""

        def recorded(*args: Any, **kwargs: Any) -> Any:
            from .autograd import trained

            return trained(overload, overload.bind(args, kwargs))

        self._define(overload, name, recorded)

    def _define(self, overload: Overload, qualified_name: str, function: Callable[..., Any]) -> None:
        namespace, _, name = qualified_name.partition("::")
        if self._references is None:
            self._references = torch.library.Library(namespace, "FRAGMENT")
        self._references.define(name + overload.schema_text.removeprefix(overload.name))
        self._references.impl(name, function, "CompositeImplicitAutograd")


def why_not() -> str:
    """Why the kernels at the Autograd key are in Python; empty if they are native."""
    library = _library()
    return library if isinstance(library, str) else ""


def _references(overload: Overload) -> str:
    return f"{overload.namespace}_reference"


def _free_name(overload: Overload) -> str:
    """The overload's name; with a number where the reference of an operator that it has replaced is kept."""
    base, dot, variant = overload.name.partition(".")
    names = chain([base], (f"{base}_{number}" for number in count(2)))
    candidates = (f"{name}{dot}{variant}" for name in names)
    return next(name for name in candidates if not private.is_defined(f"{_references(overload)}::{name}"))


@cache
def _library() -> ctypes.CDLL | str:
    """The native Autograd library, or why there is none."""
    wanted = os.environ.get("OPWHEEL_AUTOGRAD", "")
    if wanted not in ("", "native", "python"):
        raise ValueError(f"OPWHEEL_AUTOGRAD is {wanted!r}; it is 'native', 'python' or not set")
    if wanted == "python":
        return "OPWHEEL_AUTOGRAD=python"
    found = _open()
    if isinstance(found, str) and wanted == "native":
        raise ImportError(f"OPWHEEL_AUTOGRAD=native, but {found}")
    return found


def _open() -> ctypes.CDLL | str:
    library = open_library("autograd")
    if isinstance(library, str):
        return library
    library.opwheel_autograd_register.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    library.opwheel_autograd_register.restype = ctypes.c_void_p
    library.opwheel_autograd_remove.argtypes = [ctypes.c_void_p]
    return library
