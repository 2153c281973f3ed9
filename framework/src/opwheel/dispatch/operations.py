"""What the public functions call: the functions in C++ of :mod:`.calls`.

``torch.ops.waves.axpby.default`` is a function in Python that calls the same one. That goes through all dispatch keys,
and shows itself to tensor subclasses and modes as the overload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._import_hooks import after_import
from .._torch import private
from . import calls
from .overload import Overload

# What Dynamo has been told about. It identifies them by address: they must live on.
_traced: set[Callable[..., Any]] = set()


def name_in_source(overload: Overload) -> str:
    """How a source text calls the operator: ``_op_axpby_out`` for ``axpby.out``."""
    return f"_op_{overload.name.replace('.', '_')}"


def add_operations(scope: dict[str, Any], overloads: Iterable[Overload]) -> None:
    """Give a source text the operators, under :func:`name_in_source`.

    Args:
        scope: the global names of the source text.
        overloads: of the library.
    """
    overloads = tuple(overloads)
    for overload in overloads:
        scope[name_in_source(overload)] = calls.function(overload.op)

    @after_import("torch._dynamo")
    def _let_the_compiler_see_operators() -> None:
        for overload in overloads:
            _trace_instead(overload.op)


def _trace_instead(op: Callable[..., Any]) -> None:
    """Let Dynamo trace ``op`` in the place of the function in C++ that calls it."""
    operation = calls.function(op)
    if operation is not op and operation not in _traced:
        _traced.add(operation)
        private.trace_instead(operation, op)
