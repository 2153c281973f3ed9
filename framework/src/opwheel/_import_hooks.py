"""Lazy attributes of packages (PEP 562), post-import callbacks, and a pause of the garbage collector for imports."""

from __future__ import annotations

import gc
import importlib.abc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[], None]


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause the garbage collector, where it is on: an import keeps what it makes, so collecting finds nothing.

    What was made meanwhile is old at the end, without being looked at: else the next allocation would begin to. Unless
    it is little, or somebody has frozen objects, which would be thawed; to count those takes milliseconds.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] > gc.get_threshold()[0] and gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def names_from(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package (PEP 562) whose names are imported when they are first used.

    Args:
        package: its name.
        modules: for each name the module that has it, relative to the package: ``".library"``.
    """

    def get(name: str) -> Any:
        if name in modules:
            with without_collections():
                return getattr(import_module(modules[name], package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def after_import(module: str) -> Callable[[Action], Action]:
    """Decorator: run the function after ``module`` has been imported, which may be now, later or never.

    For what most programs do not use and what takes long to import.
    """

    def register(action: Action) -> Action:
        if module in sys.modules:
            action()
            return action
        waiting = [one for one in sys.meta_path.copy() if isinstance(one, _Finder) and one.module == module]
        if not waiting:
            waiting = [_Finder(module)]
            sys.meta_path.insert(0, waiting[0])
        waiting[0].actions.append(action)
        if module in sys.modules and waiting[0].take(action):  # another thread has imported it meanwhile
            action()
        return action

    return register


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as Python would, and runs actions when it has been imported."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.actions: list[Action] = []

    def take(self, action: Action) -> bool:
        """Whether the caller is to run the action: each is run by one thread."""
        try:
            self.actions.remove(action)
        except ValueError:
            return False
        return True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        # The finders behind this one: among them may be one of another copy of opwheel, which has its own actions.
        finders = sys.meta_path.copy()
        first = finders.index(self) + 1 if self in finders else 0
        found = (finder.find_spec(fullname, path, target) for finder in finders[first:])
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                # Not before: a specification may be asked for, and an import may fail, without the module being there.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    for action in self.actions.copy():
                        if self.take(action):
                            action()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
