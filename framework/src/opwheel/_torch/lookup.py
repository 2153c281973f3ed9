"""Finds what private names of PyTorch stand for: :mod:`.names` has a table of them.

PyTorch promises nothing about these names. Where one is missing, a warning says in words what will not work, once, and
what is returned in its place raises when it is used. So a new PyTorch costs what depends on the name, and not the
import. ``doctor`` lists what is missing.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

if TYPE_CHECKING:
    from .names import Name


class Missing:
    """In the place of a name that this PyTorch lacks: whatever it is used for raises."""

    def __init__(self, name: Name) -> None:
        self._name = name

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(in_words(self._name))

    def __str__(self) -> str:
        return in_words(self._name)

    __call__ = __getattr__ = __enter__ = __and__ = __rand__ = __ge__ = __iter__ = __instancecheck__ = _refuse

    def __exit__(self, *_: object) -> None:
        """What :meth:`__enter__` raises passes."""


def find(path: str) -> Any:
    """The object that a private name stands for, or :class:`Missing` and a warning where there is none."""
    try:
        return _resolve(path)
    except (AttributeError, ImportError):
        from .names import NAMES  # most processes do without the table

        _warn_once(NAMES[path])
        return Missing(NAMES[path])


found = cache(find)
"""The same for what is looked up when it is used."""


def is_missing(path: str) -> bool:
    """Whether this PyTorch lacks a name."""
    return isinstance(found(path), Missing)


def needed(thing: Any) -> Any:
    """What :func:`find` returned; raises if that is :class:`Missing`, where its error would be taken for another."""
    if isinstance(thing, Missing):
        thing()
    return thing


def attribute(of: Any, name: str, path: str) -> Any:
    """An object's attribute, or what raises in its place where objects of its kind have none in this PyTorch."""
    missing = found(path)
    return missing if isinstance(missing, Missing) else getattr(of, name)


def holder(path: str) -> Any:
    """What has the attribute: of a name whose value changes, or of which each object has its own."""
    found = find(path)
    return found if isinstance(found, Missing) else _resolve(path.rpartition(".")[0])


def missing(*, lazy: bool = False) -> list[Name]:
    """The names that this PyTorch lacks; ``lazy`` ones as well, which imports most of PyTorch."""
    from .names import NAMES

    return [name for name in NAMES.values() if lazy or not name.lazy if not _exists(name.path)]


def in_words(name: Name) -> str:
    """What is missing, what for, and what to do."""
    return (
        f"PyTorch {torch.__version__} has no {name.path}, which opwheel uses for this: {name.purpose}. Without it "
        f"{name.without}. To fix it: install a release of opwheel that knows this PyTorch, or an older PyTorch"
    )


@cache
def _warn_once(name: Name) -> None:
    warnings.warn(f"opwheel: {in_words(name)}", RuntimeWarning, stacklevel=4)


def _exists(path: str) -> bool:
    try:
        _resolve(path)
    except (AttributeError, ImportError):
        return False
    return True


def _resolve(path: str) -> Any:
    """Attribute by attribute, importing modules on the way."""
    walked, *parts = path.split(".")
    found: Any = torch if walked == "torch" else torch.library.Library("_opwheel", "FRAGMENT")
    for part in parts:
        walked = f"{walked}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            if not isinstance(found, ModuleType):
                raise
            found = import_module(walked)
    return found
