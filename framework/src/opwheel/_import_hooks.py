"""Runs something as soon as a module has been imported, without importing it."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def after_import(module: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Decorator: run the function after ``module`` has been imported, which may be now, later or never.

    For what most programs do not use and what takes long to import.
    """

    def register(action: Callable[[], None]) -> Callable[[], None]:
        if module in sys.modules:
            action()
        else:
            sys.meta_path.insert(0, _Finder(module, action))
        return action

    return register


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as Python would, and runs an action when it has been imported."""

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self._module = module
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                # Not before: a specification may be asked for, and an import may fail, without the module being there.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self._action()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
