"""A script that shows a finding: PyTorch, the library, one call and the check, nothing of opwheel."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import checks
from .calls import Call, path_of
from .target import Target

_LITERAL = 64  # elements of a tensor that is written out
_IMPORTS = {  # what checks import, by the name that they use
    "concurrent": "import concurrent.futures",
    "ctypes": "import ctypes",
    "warnings": "import warnings",
    "Callable": "from collections.abc import Callable",
    "Any": "from typing import Any",
    "NamedTuple": "from typing import NamedTuple",
    "Tensor": "from torch import Tensor",
    "pytree": "from torch.utils import _pytree as pytree",
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
            f"args = {_text(call.args, exact)}",
            f"kwargs = {_text(call.kwargs, exact)}",
            f"{function.__name__}(op, args, kwargs)",
            "",
        ]
    )


@cache
def _definitions() -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Every function and class of the checks, in an order in which they can be defined."""
    bodies = [ast.parse(inspect.getsource(module)).body for module in checks.MODULES]
    return {n.name: n for body in bodies for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


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


def _text(value: Any, exact: bool) -> str:
    """Python that makes the value."""
    if isinstance(value, Tensor):
        return _tensor(value, exact)
    if isinstance(value, (list, tuple)):
        inside = ", ".join(_text(one, exact) for one in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(one, exact)}" for key, one in value.items()) + "}"
    if isinstance(value, float) and value - value != 0:  # an infinity or nan
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    return repr(value)


def _tensor(value: Tensor, exact: bool) -> str:
    if value.numel() > _LITERAL and value.is_floating_point() and not exact:
        return f"torch.rand({tuple(value.shape)}, dtype={value.dtype})"
    numbers = str(value.tolist()).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
    text = f"torch.tensor({numbers}, dtype={value.dtype})"
    return text if value.numel() else f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"
