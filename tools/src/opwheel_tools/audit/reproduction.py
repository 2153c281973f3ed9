"""A script that shows a finding: PyTorch, the library, one call and the check, nothing of opwheel."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache, partial

from torch import Tensor

from ..judge import calls
from ..judge.calls import Call, path_of
from . import checks
from .outcomes import Outcome, where
from .target import Target

_LITERAL = 64  # elements of a tensor that is written out
_IMPORTS = {  # what checks import, by the name that they use
    "concurrent": "import concurrent.futures",
    "ctypes": "import ctypes",
    "threading": "import threading",
    "warnings": "import warnings",
    "Callable": "from collections.abc import Callable",
    "Iterator": "from collections.abc import Iterator",
    "Mapping": "from collections.abc import Mapping",
    "Any": "from typing import Any",
    "NamedTuple": "from typing import NamedTuple",
    "Tensor": "from torch import Tensor",
    "pytree": "from torch.utils import _pytree as pytree",
    "GuardOnDataDependentSymNode": "from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode",
    "ShapeEnv": "from torch.fx.experimental.symbolic_shapes import ShapeEnv",
    "TorchDispatchMode": "from torch.utils._python_dispatch import TorchDispatchMode",
}


def script(target: Target, call: Call, check: str, message: str, *, exact: bool) -> str:
    """The text of a script that raises ``AssertionError`` where the finding is.

    Args:
        target: the library.
        call: the call.
        check: its name in ``checks.CHECKS``.
        message: what was found.
        exact: with the call's values; otherwise large tensors hold random numbers of a fixed seed.
    """
    function = checks.CHECKS[check]
    sources = "\n\n\n".join(_sources(function.__name__))
    words = where(Outcome.WRONG, message)
    return "\n".join(
        [
            f"# {call.operator}: {check}",
            *(f"# {line}" for line in message.splitlines()[:6]),
            "from __future__ import annotations",
            "",
            *(line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", sources)),
            "import torch",
            *target.statements(),
            "",
            "",
            sources,
            "",
            "",
            "torch.manual_seed(0)",
            f"op = torch.ops.{path_of(call.operator)}",
            f"args = {calls.text(call.args, partial(_tensor, exact=exact))}",
            f"kwargs = {calls.text(call.kwargs, partial(_tensor, exact=exact))}",
            f"for problem in {function.__name__}(op, args, kwargs):",
            f"    assert not problem.startswith({words!r}), problem",
            "",
        ]
    )


@cache
def _definitions() -> dict[str, ast.stmt]:
    """Every function, class and constant of the checks, in an order in which they can be defined."""
    found: dict[str, ast.stmt] = {}
    for statement in (one for module in checks.MODULES for one in ast.parse(inspect.getsource(module)).body):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            found[statement.targets[0].id] = statement
    return found


def _sources(name: str) -> list[str]:
    """The check's source, after that of everything in its package that it uses."""
    definitions = _definitions()
    needed: set[str] = set()

    def add(one: str) -> None:
        if one in definitions and one not in needed:
            needed.add(one)
            names = [node for node in ast.walk(definitions[one]) if isinstance(node, ast.Name)]
            own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            for node in names:
                if node.id not in own:
                    add(node.id)

    add(name)
    return [ast.unparse(node) for key, node in definitions.items() if key in needed]


def _tensor(value: Tensor, exact: bool) -> str:
    if value.numel() > _LITERAL and value.is_floating_point() and not exact:
        return f"torch.rand({tuple(value.shape)}, dtype={value.dtype})"
    numbers = str(value.tolist()).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
    text = f"torch.tensor({numbers}, dtype={value.dtype})"
    return text if value.numel() else f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"
