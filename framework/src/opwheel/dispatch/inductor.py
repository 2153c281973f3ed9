"""torch.compile's inductor writes element-wise operators into the same loop as their neighbours.

A call of a kernel costs it microseconds, and a pass over memory. So such operators are given to inductor as their
reference in the compute dtype, rounded once; ``compile = "kernel"`` in an operator's declaration or in the policy keeps
the call. ``torch.compile``'s other backends, ``torch.export`` and eager mode see the operators in any case.

What inductor and AOTAutograd keep on disk does not depend on decompositions: their keys get a digest of ours
(``torch.compiler.config.cache_key_tag``, which is for this).
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from inspect import unwrap
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from .._torch import private
from .._version import __version__
from . import reinplacing
from .decompositions import decomposition_table
from .library_like import LibraryLike
from .overload import Overload
from .rules import Rule


def register(library: LibraryLike, overloads: Iterable[Overload]) -> None:
    """Add to inductor's decompositions what the declarations and the policy let it fuse."""
    if (decompositions := private.decompositions()) is not None:
        decompositions.update(decomposition_table([one for one in overloads if is_fused(library, one)]))
        private.decompositions_changed()
    tag = f" {library.namespace}:{digest(library, overloads)}"
    private.change_cache_key_tag(lambda before: before + tag)
    _tags[library.namespace, library.schemas] = tag


def unregister(library: LibraryLike, overloads: Iterable[Overload]) -> None:
    """Undo :func:`register`."""
    if (decompositions := private.decompositions()) is not None:
        for overload in overloads:
            decompositions.pop(overload.op, None)
        private.decompositions_changed()
    tag = _tags.pop((library.namespace, library.schemas), "")
    private.change_cache_key_tag(lambda before: before.replace(tag, "", 1))


_tags: dict[tuple[str, tuple[str, ...]], str] = {}  # in the keys of compiled programs, by namespace and schemas


@contextmanager
def kept(overloads: Iterable[Overload]) -> Iterator[None]:
    """While it lasts, inductor keeps the operators as calls."""
    if (decompositions := private.decompositions()) is None:
        yield
        return
    removed = {overload.op: decompositions.pop(overload.op, None) for overload in overloads}
    private.decompositions_changed()
    tag = f" kept:{','.join(sorted(map(str, removed)))}"
    private.change_cache_key_tag(lambda before: before + tag)
    try:
        yield
    finally:
        private.change_cache_key_tag(lambda before: before.replace(tag, "", 1))
        decompositions.update({op: decomposition for op, decomposition in removed.items() if decomposition})
        private.decompositions_changed()


def is_fused(library: LibraryLike, overload: Overload) -> bool:
    """Whether inductor gets the reference in the place of calls."""
    return (
        overload.rule.fuses
        and not overload.mutates
        and overload.operator.compile == "fuse"
        and library.policy.compile == "fuse"
    )


def digest(library: LibraryLike, overloads: Iterable[Overload]) -> str:
    """Of what compiled programs depend on: schemas, declarations, and the code of their functions."""
    text = hashlib.sha256(__version__.encode())
    seen: set[int] = set()
    for overload in overloads:
        parts = [overload.qualified_name, overload.schema_text, str(is_fused(library, overload))]
        try:
            parts += [_text(getattr(overload.operator, name), seen) for name in _COMPILED]
            parts += _code_of_copies() if overload.mutates else []
        except Exception:  # such as a variable that is not bound yet: nothing that was kept fits
            parts.append(secrets.token_hex())
        text.update("\n".join(parts).encode())
    return text.hexdigest()[:16]


# What of a declaration takes part in a compiled program. The rest is documentation, and for tests and measurements.
_COMPILED = ("reference", "fake", "rule", "derivatives", "not_differentiable", "training", "autocast")


def _text(value: Any, seen: set[int]) -> str:
    """What a value computes: of functions and classes their code, and what that refers to.

    Of an object that prints its address the text differs from process to process: nothing that was kept fits then.
    """
    value = unwrap(value) if callable(value) else value  # as functools.cache makes them
    match value:
        case FunctionType() | type() | ModuleType() | BuiltinFunctionType():
            name = f"{value.__module__}.{value.__qualname__}" if not isinstance(value, ModuleType) else value.__name__
            if id(value) in seen or not _may_change(name):
                return name
            seen.add(id(value))
            refers_to = _used_by_class(value) if isinstance(value, type) else _used_by_function(value)
            own = _code(value.__code__) if isinstance(value, FunctionType) else name
            return own + _text(refers_to, seen)
        case partial():
            return _text([value.func, *value.args, value.keywords], seen)
        case Rule():
            return repr(value) + _text(type(value), seen)
        case Mapping():
            return _text(list(value.items()), seen)
        case tuple() | list():
            return "".join(f"{_text(one, seen)}, " for one in value)
        case set() | frozenset():
            return ", ".join(sorted(_text(one, seen) for one in value))  # else in another order in each process
    return repr(value)


def _may_change(name: str) -> bool:
    """Whether the code of a module or its member is not told by Python's and PyTorch's versions, which keys have."""
    package = name.partition(".")[0]
    return package != "torch" and package not in sys.stdlib_module_names


def _used_by_function(function: Any) -> list[Any]:
    """Its closure, its defaults, and what it names, in its own module and in others that it names."""
    if not isinstance(function, FunctionType):
        return []
    names = _names(function.__code__)
    used = [function.__globals__[name] for name in names if name in function.__globals__]
    followed: set[str] = set()
    for one in used:  # which grows: a module's member may be a module
        if isinstance(one, ModuleType) and one.__name__ not in followed and _may_change(one.__name__):
            followed.add(one.__name__)
            used += [getattr(one, name) for name in names if hasattr(one, name)]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [*cells, *used, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _used_by_class(kind: type) -> list[Any]:
    """The classes that it inherits from, and its methods."""
    members = [getattr(one, "__func__", getattr(one, "fget", one)) for one in vars(kind).values()]
    return [*kind.__bases__, *(one for one in members if isinstance(one, FunctionType))]


def _code(code: CodeType) -> str:
    """All of a code object that says what it does: not where it stands."""
    constants = [_code(one) if isinstance(one, CodeType) else _text(one, set()) for one in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


@cache
def _code_of_copies() -> list[str]:
    """Of what decides where compiled programs copy what operators write to."""
    functions = [unwrap(one) for one in vars(reinplacing).values() if callable(one)]
    own = (one for one in functions if isinstance(one, FunctionType) and one.__module__ == reinplacing.__name__)
    return [_code(one.__code__) for one in own]


def _names(code: CodeType) -> list[str]:
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return [*code.co_names, *inner]
