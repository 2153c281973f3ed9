"""The hooks of the plugin interface: one for each kind of plugin, all by pluggy's convention.

A plugin's entry point names a module, and the module has a function that is marked with ``@hookimpl`` and has the
hook's name. The entry point's group says which hook is asked: ``<namespace>.backends`` or ``<namespace>.runtimes``.

Nearly every plugin is a module with one marked function without parameters, which pluggy would just call. That is done
without pluggy (:func:`plain_hook`), whose import takes longer than everything else that is asked of a plugin. Whatever
else a plugin is goes through pluggy (:mod:`.pluggy_hooks`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, TypeVar, overload

PROJECT = "opwheel"
_MARK = f"{PROJECT}_impl"  # the attribute that pluggy looks for
_CO_VARARGS_OR_KEYWORDS = 0x0C  # of code.co_flags

Function = TypeVar("Function", bound=Callable[..., object])


@overload
def hookimpl(function: Function) -> Function: ...
@overload
def hookimpl(**options: Any) -> Callable[[Function], Function]: ...
def hookimpl(function: Any = None, **options: Any) -> Any:
    """Mark a plugin's implementation of a hook, as ``pluggy.HookimplMarker("opwheel")`` does.

    Args:
        function: has the hook's name and no parameters.
        options: those of pluggy, such as ``specname``.

    Returns:
        The function; without one, a decorator.
    """
    if function is None or options:
        import pluggy

        return pluggy.HookimplMarker(PROJECT)(function, **options)
    # What pluggy's decorator sets.
    options = dict.fromkeys(("wrapper", "hookwrapper", "optionalhook", "tryfirst", "trylast"), False)
    setattr(function, _MARK, {**options, "specname": None})
    return function


def plain_hook(plugin: object, hook: str) -> Callable[[], object] | None:
    """The only marked function of a module, if it is this hook and pluggy has nothing to do but call it."""
    if type(plugin) is not ModuleType:
        return None
    functions = [value for value in list(vars(plugin).values()) if type(value) is FunctionType]
    marked = [function for function in functions if _MARK in vars(function)]
    if len(marked) != 1 or marked[0] is not vars(plugin).get(hook) or "__wrapped__" in vars(marked[0]):
        return None
    function = marked[0]
    options, code = vars(function)[_MARK], function.__code__
    has_parameters = code.co_argcount or code.co_kwonlyargcount or code.co_flags & _CO_VARARGS_OR_KEYWORDS
    is_plain = type(options) is dict and not any(options.values()) and not has_parameters
    return function if is_plain else None
