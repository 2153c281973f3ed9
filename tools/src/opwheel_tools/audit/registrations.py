"""Which module's code registered an operator: a library's own operators, without those of what it imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
from types import ModuleType
from typing import Any

from opwheel._torch.private import every_operator


@contextmanager
def noted() -> Iterator[dict[str, str]]:
    """While it is entered, each operator that is registered, and the innermost module whose code ran then."""
    owners: dict[str, str] = {}
    running = [""]
    known = set(every_operator())

    def note() -> None:
        new = set(every_operator()) - known
        known.update(new)
        owners.update(dict.fromkeys(new, running[-1]))

    def noting(plain: Callable[[Any, ModuleType], None]) -> Callable[[Any, ModuleType], None]:
        def exec_module(loader: Any, module: ModuleType) -> None:
            note()
            running.append(module.__name__)
            try:
                plain(loader, module)
            finally:
                note()
                running.pop()

        return exec_module

    loaders: tuple[Any, ...] = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)
    own = [vars(loader).get("exec_module") for loader in loaders]  # most inherit it
    for loader in loaders:
        loader.exec_module = noting(loader.exec_module)
    try:
        yield owners
        note()
    finally:
        for loader, before in zip(loaders, own, strict=True):
            if before is None:
                del loader.exec_module
            else:
                loader.exec_module = before
