"""Keeps calls of some namespaces' operators while another program runs: small ones, no two of the same kind."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from opwheel._torch import private
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..judge import calls
from ..judge.calls import Call

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
        folder: where each call is written to as well, before it is made: it may end the process.
    """

    def __init__(self, namespaces: set[str], folder: Path | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.namespaces = namespaces
        self.folder = folder
        self.calls: list[Call] = []
        self._kinds: set[str] = set()
        self._count: Counter[str] = Counter()
        self._composites = _Composites(self)
        self._is_copying = False

    def __enter__(self) -> Recorder:
        self._composites.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._composites.__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.record(func, func, args, kwargs or {})

    def record(self, op: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a call of an operator, which is kept unless it raises."""
        if self._is_copying or op.namespace not in self.namespaces:
            return func(*args, **kwargs)
        self._is_copying = True
        try:
            kept = self._copied(op, args, kwargs)
            file = self._written(kept) if kept is not None and self.folder is not None else None
        finally:
            self._is_copying = False
        try:
            result = func(*args, **kwargs)
        except BaseException:
            if file is not None:
                file.unlink()
            raise
        if kept is not None:
            self.calls.append(kept)
        return result

    def _written(self, call: Call) -> Path:
        folder: Any = self.folder
        part = folder / f"{os.getpid()}-{sum(self._count.values()):06}.part"
        calls.save([call], part)
        return Path(part.rename(part.with_suffix(".calls")))  # a process that ends while it writes leaves no half

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


class _Composites(TorchFunctionMode):
    """Records calls of operators that consist of calls of others, of which a dispatch mode sees nothing but these."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = self._overload(func, args, kwargs)
        if op is not None and private.has_kernel(calls.name_of(op), "CompositeImplicitAutograd"):
            return self._recorder.record(op, func, args, kwargs)
        return func(*args, **kwargs)

    def _overload(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator that a function is, if it is one of the namespaces'."""
        namespace, _, name = str(func).partition(".")
        if isinstance(func, type(torch.ops.aten.add.Tensor)):
            return func if namespace in self._recorder.namespaces else None
        if not isinstance(func, type(torch.ops.aten.add)) or namespace not in self._recorder.namespaces:
            return None
        return getattr(func, private.overload_for(f"{namespace}::{name}", args, kwargs))


def _kind(value: Any) -> Any:
    return (tuple(value.shape), value.dtype, value.stride()) if isinstance(value, Tensor) else value


def start() -> None:
    """Record this process from now on, each call to a file of its own."""
    namespaces, _, folder = os.environ[_VARIABLE].partition(" ")
    recorder = Recorder(set(namespaces.split(",")), Path(folder))
    recorder.__enter__()
    atexit.register(recorder.__exit__, None, None, None)


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
