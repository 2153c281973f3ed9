"""Keeps calls of some namespaces' operators while another program runs: small ones, no two of the same kind."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import calls
from .calls import Call

_VARIABLE = "OPWHEEL_AUDIT_RECORD"  # namespaces and the folder to write to
_MOST_ELEMENTS = 20_000
_MOST_PER_OPERATOR = 8
# Python imports this module as it starts; then it imports the one that would have been imported without it.
_START = """\
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from opwheel_tools.audit import recording

recording.start()
others = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]
if found := PathFinder.find_spec("sitecustomize", others):
    found.loader.exec_module(importlib.util.module_from_spec(found))
"""


class Recorder(TorchDispatchMode):
    """While it is entered, it keeps calls of the operators of some namespaces in :attr:`calls`.

    Args:
        namespaces: of the operators.
    """

    def __init__(self, namespaces: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.namespaces = namespaces
        self.calls: list[Call] = []
        self._kinds: set[str] = set()
        self._count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kept = self._copied(func, args, kwargs) if func.namespace in self.namespaces else None
        result = func(*args, **kwargs)
        if kept is not None:  # a call that raises is no sample
            self.calls.append(kept)
        return result

    def _copied(self, func: Any, args: Any, kwargs: Any) -> Call | None:
        name = calls.name_of(func)
        tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, Tensor)]
        if any(type(t) not in (Tensor, torch.nn.Parameter) or t.device.type != "cpu" for t in tensors):
            return None
        if self._count[name] >= _MOST_PER_OPERATOR or sum(t.numel() for t in tensors) > _MOST_ELEMENTS:
            return None
        kind = repr((name, pytree.tree_map(_kind, (args, kwargs))))
        if kind in self._kinds or not calls.is_plain((args, kwargs)):
            return None
        self._kinds.add(kind)
        self._count[name] += 1
        return Call(name, calls.fresh(tuple(args)), calls.fresh(dict(kwargs)), "recorded")


def _kind(value: Any) -> Any:
    return (tuple(value.shape), value.dtype, value.stride()) if isinstance(value, Tensor) else value


def start() -> None:
    """Record this process from now on, to a file that is written when it ends."""
    namespaces, _, folder = os.environ[_VARIABLE].partition(" ")
    recorder = Recorder(set(namespaces.split(",")))
    recorder.__enter__()  # type: ignore[no-untyped-call]

    def finish() -> None:
        recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if recorder.calls:
            calls.save(recorder.calls, Path(folder) / f"{os.getpid()}.calls")

    atexit.register(finish)


def run(command: list[str], namespaces: set[str], path: Path) -> tuple[int, int]:
    """Run a command with every Python process of it recorded, and write the calls to a file.

    Returns:
        The command's exit status, and how many calls there are.
    """
    with tempfile.TemporaryDirectory() as folder:
        hook = Path(folder) / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(_START)
        search = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": search, _VARIABLE: f"{','.join(sorted(namespaces))} {folder}"}
        status = subprocess.run(command, env=environment, check=False).returncode
        found = [call for file in sorted(Path(folder).glob("*.calls")) for call in calls.load(file)]
    calls.save(found, path)
    return status, len(found)
