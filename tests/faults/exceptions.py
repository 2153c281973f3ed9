"""Runs in a child: every exception class of the packages it is given, and whether it survives pickle and copy.

Prints as JSON the classes by name, each with what went wrong, their codes, and the class statements that none of them
came from.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import inspect
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_BUILT_IN = {name for name, value in vars(builtins).items() if isinstance(value, type)}
_SOUNDS_LIKE_ONE = re.compile(r"(Error|Exception|Warning|Exit|Abort|Interrupt)$")


def main(packages: list[str]) -> None:
    """Look at all modules of the packages, and print the report."""
    files: dict[str, Path] = {}
    for package in packages:
        modules = dict(_modules(package))
        files |= modules
        for name in modules:
            if not name.endswith("__main__"):  # which runs a command
                importlib.import_module(name)
    kinds = [kind for kind in _subclasses(BaseException) if kind.__module__ in files]
    found = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds}
    report = {
        "classes": {name: list(_problems(kind)) for name, kind in found.items()},
        "codes": {
            name: sorted({str(getattr(error, "code", "")) for error in _instances(kind)})
            for name, kind in found.items()
        },
        "unseen": sorted(_statements(files) - found.keys()),
    }
    print(json.dumps(report))


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    """Each Python file of a package, by the module's name; all of them, those that nothing imports too."""
    folder = Path(str(importlib.import_module(package).__file__)).parent
    for file in sorted(folder.rglob("*.py")):
        parts = (package, *file.relative_to(folder).with_suffix("").parts)
        yield ".".join(part for part in parts if part != "__init__"), file


def _subclasses(kind: type) -> Iterator[type]:
    for subclass in dict.fromkeys(type.__subclasses__(kind)):
        yield subclass
        yield from _subclasses(subclass)


def _statements(files: dict[str, Path]) -> set[str]:
    """The class statements in the files that make exceptions, as far as their bases' names tell, nested ones too."""
    statements = [
        (f"{module}.{qualified}", [_last_name(base) for base in node.bases])
        for module, file in files.items()
        for qualified, node in _classes(ast.parse(file.read_text()), "")
    ]
    known = {name for name in _BUILT_IN if issubclass(getattr(builtins, name), BaseException)}
    exceptions: set[str] = set()
    while more := {
        name
        for name, bases in statements
        if name not in exceptions and any(base in known or _SOUNDS_LIKE_ONE.search(base) for base in bases)
    }:
        exceptions |= more
        known |= {name.rpartition(".")[2] for name in more}
    return exceptions


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.ClassDef):
            yield f"{prefix}{child.name}", child
            inner = f"{prefix}{child.name}."
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = f"{prefix}{child.name}.<locals>."
        yield from _classes(child, inner)


def _last_name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


# ---- the ways out of a process and back ------------------------------------------------------------------------------

WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle protocol {protocol}": lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


def _problems(kind: type) -> Iterator[str]:
    for error in _instances(kind):
        for name, way in WAYS.items():
            try:
                back = way(error)
            except Exception as problem:
                yield f"{name}: {type(problem).__name__}: {problem}"
                continue
            if _seen(back) != _seen(error):
                yield f"{name}: {_seen(back)} instead of {_seen(error)}"


def _seen(error: BaseException) -> tuple[Any, ...]:
    """What a program can see of it, its code and message and notes among the attributes."""
    return type(error), str(error), error.args, vars(error)


def _instances(kind: type) -> Iterator[BaseException]:
    """One with only the arguments it needs, one with all of them, and one that was changed and noted upon."""
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    parameters = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    needed = [one for one in parameters if one.default is one.empty and one.kind is not one.VAR_POSITIONAL]
    yield kind(*map(_argument, needed))
    yield kind(*map(_argument, parameters))
    changed = kind(*map(_argument, parameters))
    changed.__dict__["more"] = ["set", "later"]
    if sys.version_info >= (3, 11):
        changed.add_note("while it was tried")
    yield changed


def _argument(parameter: inspect.Parameter) -> Any:
    """An argument for a parameter of that annotation. An exception that takes others is made known here."""
    if parameter.kind is parameter.VAR_POSITIONAL or parameter.annotation in (str, "str"):
        return f"{parameter.name} für ☃, 1 % {{of}}\nit"
    raise TypeError(f"{__file__} cannot make a value for {parameter}")


if __name__ == "__main__":
    main(sys.argv[1:])
