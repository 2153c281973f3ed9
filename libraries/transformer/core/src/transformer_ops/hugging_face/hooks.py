"""Whether a module is what its library ships, and whether anybody looks at it: what may be computed without calling it.

Classes and functions are known by identity, through the modules that define them, which are not imported for that. A
name alone says nothing: Liger-Kernel or a test may have a ``LlamaMLP`` of their own, or put another function into
transformers' class.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

from torch import nn
from torch.nn.modules import module as nn_module


def loaded(name: str) -> ModuleType | None:
    """A module that is imported, or None."""
    return sys.modules.get(name)


def is_shipped_function(function: Any, home: ModuleType) -> bool:
    """Whether a function is defined in ``home``, with nothing but decorators of torch and transformers around it."""
    while isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
        if str(function.__globals__.get("__name__")).partition(".")[0] not in ("torch", "transformers"):
            return False
        function = function.__wrapped__
    return isinstance(function, FunctionType) and function.__globals__ is vars(home)


def shipped_class(name: str, home: ModuleType | None, but: tuple[str, ...] = ()) -> type[nn.Module] | None:
    """The module class that ``home`` defines under a name; None if it has none, or somebody has changed it.

    Changed is a class of another module under that name, or one with a function that is not of ``home``. ``__init__``
    does not matter, since the module has been made, nor do the functions named by ``but``.
    """
    cls = getattr(home, name, None)
    if home is None or not isinstance(cls, type) or cls.__module__ != home.__name__ or cls.__bases__ != (nn.Module,):
        return None
    for attribute, value in vars(cls).items():
        function = getattr(value, "fget", getattr(value, "__func__", value))
        is_code = callable(function) or (hasattr(type(value), "__get__") and not attribute.startswith("__"))
        if is_code and attribute not in ("__init__", *but) and not is_shipped_function(function, home):
            return None
    return cls


def hidden_method(module: nn.Module) -> str:
    """A method of its class that the module has in its own dictionary as well, as hooks of accelerate do; or empty."""
    methods = (name for name in vars(module) if callable(getattr(type(module), name, None)))
    return next(methods, "")


def has_hooks(module: nn.Module) -> bool:
    """Whether somebody is called when the module is, or its gradients are computed: hooks of it, or of all modules."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or nn_module._has_any_global_hook()
    )


def has_hooks_inside(module: nn.Module) -> bool:
    """Whether backward hooks of the older kind see the gradients of the last operator in it, not of the module."""
    own = module._backward_hooks and module._is_full_backward_hook is False
    every = nn_module._global_backward_hooks and nn_module._global_is_full_backward_hook is False
    return bool(own or every)


def why_not_left_out(module: nn.Module) -> str:
    """Why somebody might notice that a module of a shipped class is not called; empty if nobody can."""
    if has_hooks(module):
        return "has hooks"
    if method := hidden_method(module):
        return f"has a {method} of its own"
    return "is compiled by itself" if getattr(module, "_compiled_call_impl", None) is not None else ""
