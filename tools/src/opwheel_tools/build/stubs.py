"""Writes ``__init__.pyi`` beside a library's ``__init__.py``: what mypy, editors and stubtest read of it.

The functions of a library are made when it is imported, from the schemas in its shared library. So the build imports
it, in a process of its own, and writes down what is there::

    python -m opwheel_tools.build.stubs PACKAGE [FILE]
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

_HEADER = "# Written by opwheel_tools.build from __init__.py, the schemas and the docstrings.\n"


def stub_of(source: str, names: list[str], functions: dict[str, Callable[..., Any]]) -> str:
    """The stub's text.

    Args:
        source: of ``__init__.py``. Its imports and assignments stay, and what it only does is left out.
        names: ``__all__``, which type checkers cannot work out.
        functions: those that are made when it is imported.
    """
    kept = [node for node in ast.parse(source).body if not _is_action(node)]
    parts = [
        ast.unparse(ast.Module(kept, [])),
        "import collections.abc\n\nimport torch",
        f"__all__ = {names!r}",
        *(_definition(name, function) for name, function in functions.items()),
    ]
    return _HEADER + "\n\n".join(parts) + "\n"


def _is_action(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _definition(name: str, function: Callable[..., Any]) -> str:
    doc = str(function.__doc__).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    lines = f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""'
    return f"def {name}{inspect.signature(function)}:\n{indent(lines, '    ')}\n"


def main(package: str, file: str | None = None) -> None:
    """Import the library and write its stub, into its folder if no file is named."""
    module = importlib.import_module(package)
    source = Path(str(module.__file__))
    stub = stub_of(source.read_text(), module.__all__, module.library.functions)
    Path(file or source.with_suffix(".pyi")).write_text(stub)


if __name__ == "__main__":
    main(*sys.argv[1:])
