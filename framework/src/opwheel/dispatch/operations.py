"""The functions in C++ that call operators: ``torch.ops`` without its frame of Python.

``torch.ops.waves.axpby.default`` is called by a function in Python that calls one in C++. The public functions call
one in C++ (:mod:`.calls`): it goes through all dispatch keys, and shows itself to tensor subclasses and modes as
``torch.ops`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._import_hooks import after_import
from . import calls
from .overload import Overload

# What Dynamo has been told about. It goes by their addresses: they must live on.
_traced: set[Callable[..., Any]] = set()


def name_in_source(overload: Overload) -> str:
    """How a source text calls the operator: ``_op_axpby_out`` for ``axpby.out``."""
    return f"_op_{overload.name.replace('.', '_')}"


def add_operations(scope: dict[str, Any], overloads: Iterable[Overload]) -> None:
    """Give a source text the operators, under :func:`name_in_source`.

    Each is looked up at its first call: all of them at once would delay the import of the library.

    Args:
        scope: the global names of the source text.
        overloads: of the library.
    """
    overloads = tuple(overloads)
    for overload in overloads:
        scope[name_in_source(overload)] = _first_call(scope, overload)

    @after_import("torch._dynamo")
    def _let_the_compiler_see_operators() -> None:
        for overload in overloads:
            scope[name_in_source(overload)] = _known_to_dynamo(overload.op)


def _first_call(scope: dict[str, Any], overload: Overload) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        operation = scope[name_in_source(overload)] = calls.function(overload.op)
        return operation(*args, **kwargs)

    return call


def _known_to_dynamo(op: Callable[..., Any]) -> Callable[..., Any]:
    """The function in C++ that calls ``op``, in whose place Dynamo traces ``op``."""
    from torch._dynamo.decorators import substitute_in_graph

    operation = calls.function(op)
    if operation not in _traced:
        _traced.add(operation)

        @substitute_in_graph(operation, skip_signature_check=True)
        def _call(*args: Any, **kwargs: Any) -> Any:
            return op(*args, **kwargs)

    return operation
