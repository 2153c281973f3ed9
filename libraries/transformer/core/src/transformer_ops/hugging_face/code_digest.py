"""A digest of the code of a function and of the functions that it calls, by which known code is recognised.

It depends on what the code computes by alone: names of classes and functions, docstrings, annotations, comments and
formatting do not matter, nor does the version of Python. That the source is what runs is checked: its file is compiled,
and the bytecode compared with that of the function.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any

_LIBRARIES = ("torch", "transformers")
_WITHOUT_MEANING = ("annotation", "returns", "decorator_list", "type_comment", "type_params", "ctx", "kind")


class UnknownCodeError(Exception):
    """The code of a function cannot be told, for the reason that this says."""

    code = None  # caught here: no caller sees it


def code_digest(function: Any, owner: type | None = None) -> str:
    """16 hexadecimal digits of the code of a function, and of what it calls.

    What it calls are functions of its module, by their global names, and methods of ``owner``; of PyTorch and of
    Python's built-in functions the name counts.

    Args:
        function: a function in Python, with nothing but decorators of torch and transformers around it.
        owner: the class whose method it is.

    Raises:
        UnknownCodeError: a decorator is somebody else's, there is no source, or the source is not what runs.
    """
    return sha256("\n".join(_describe(function, owner, set())).encode()).hexdigest()[:16]


def called_functions(function: FunctionType) -> list[tuple[ModuleType, str, FunctionType]]:
    """The module's functions that a function of it calls by a global name, and those that they call in turn."""
    home = sys.modules.get(function.__module__)
    if home is None or function.__globals__ is not vars(home):
        return []
    found = []
    for name in sorted(_global_names(_source(function))):
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType) and value is not function and not _is_of_torch(value):
            found += [(home, name, value), *called_functions(value)]
    return found


def unwrapped(function: Any) -> FunctionType:
    """The function inside of decorators of torch and transformers.

    Raises:
        UnknownCodeError: a decorator is somebody else's, or it is no function in Python.
    """
    while isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
        module = str(function.__globals__.get("__name__"))
        if module.partition(".")[0] not in _LIBRARIES:
            raise UnknownCodeError(f"a decorator of {module} is around it")
        function = function.__wrapped__
    if not isinstance(function, FunctionType):
        raise UnknownCodeError(f"it is a {type(function).__name__}")
    return function


def _describe(function: Any, owner: type | None, seen: set[CodeType]) -> Iterator[str]:
    inner = unwrapped(function)
    while function is not inner:
        yield f"in {function.__code__.co_name}"
        function = function.__wrapped__
    if inner.__code__ in seen:
        return
    seen.add(inner.__code__)
    tree = _source(inner)
    yield _text(tree)
    for name in sorted(_global_names(tree)):
        yield f"{name}:"
        yield from _describe_global(name, inner.__globals__, seen)
    for name in sorted(_attributes_of_self(tree)) if owner else ():
        method = inspect.getattr_static(owner, name, None)
        method = getattr(method, "__func__", getattr(method, "fget", method))
        if isinstance(method, FunctionType) and not _is_of_torch(method):
            yield f"self.{name}:"
            yield from _describe(method, owner, seen)


def _describe_global(name: str, namespace: dict[str, Any], seen: set[CodeType]) -> Iterator[str]:
    missing = object()
    value = namespace.get(name, missing)
    if value is missing:
        yield "built in"
    elif isinstance(value, ModuleType):
        yield f"module {value.__name__}" if sys.modules.get(value.__name__) is value else "another module"
    elif isinstance(value, FunctionType) and not _is_of_torch(value):
        yield from _describe(value, None, seen)
    elif isinstance(value, (bool, int, float, str, type(None))):
        yield repr(value)
    else:
        of = value if hasattr(value, "__qualname__") else type(value)
        yield f"{getattr(of, '__module__', '')}.{of.__qualname__}"


def _is_of_torch(function: FunctionType) -> bool:
    return str(function.__globals__.get("__name__")).partition(".")[0] == "torch"


def _source(function: FunctionType) -> ast.FunctionDef:
    """The definition of a function that is not decorated, of which it is certain that it is what runs."""
    code = function.__code__
    for definition, compiled in _definitions(code.co_filename, function.__module__).get(code.co_firstlineno, ()):
        if compiled == code:
            return definition
    raise UnknownCodeError("its source cannot be found, or is not what runs")


@cache
def _definitions(path: str, module: str) -> dict[int, list[tuple[ast.FunctionDef, CodeType]]]:
    """The functions of a file by their first line, with the code that they are compiled to."""
    namespace = vars(sys.modules[module]) if module in sys.modules else None
    source = "".join(linecache.getlines(path, namespace))
    try:
        tree = ast.parse(source)
        waiting = [compile(source, path, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return {}
    nodes: dict[tuple[int, str], ast.FunctionDef] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            nodes[first, node.name] = node
    found: dict[int, list[tuple[ast.FunctionDef, CodeType]]] = {}
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        if definition := nodes.get((code.co_firstlineno, code.co_name)):
            found.setdefault(code.co_firstlineno, []).append((definition, code))
    return found


def _text(node: Any, is_body: bool = False) -> str:
    """The tree as text, the same in every version of Python."""
    if isinstance(node, list):
        if is_body and node and isinstance(node[0], ast.Expr) and isinstance(node[0].value, ast.Constant):
            node = node[1:] if isinstance(node[0].value.value, str) else node
        return f"[{','.join(map(_text, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    fields = (
        f"{name}={_text(value, is_body=named and name == 'body')}"
        for name, value in ast.iter_fields(node)
        if name not in _WITHOUT_MEANING and not (named and name == "name") and value not in (None, [])
    )
    # A constant None is a value, not a field that is missing.
    return f"{type(node).__name__}({repr(node.value) if isinstance(node, ast.Constant) else ','.join(fields)})"


def _nodes(tree: ast.FunctionDef) -> Iterable[ast.AST]:
    """All but annotations, which do not run."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name not in _WITHOUT_MEANING:
                waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def _global_names(tree: ast.FunctionDef) -> set[str]:
    nodes = list(_nodes(tree))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return {node.id for node in nodes if isinstance(node, ast.Name)} - own


def _attributes_of_self(tree: ast.FunctionDef) -> set[str]:
    me = next((argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)), None)
    return {
        node.attr
        for node in _nodes(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me
    }
