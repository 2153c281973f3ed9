"""The hooks as pluggy has them, for whatever is not a plain marked function, and what is wrong with that."""

from __future__ import annotations

import pluggy

from .backend import Backend, Runtime
from .hooks import PROJECT

hookspec = pluggy.HookspecMarker(PROJECT)


class PluginHooks:
    """What a plugin module may implement."""

    @hookspec
    def opwheel_backend(self) -> Backend:
        """Describe kernels for PyTorch's dispatcher. Called once, when the operator library is imported.

        It must not open libraries.
        """
        raise NotImplementedError  # pragma: no cover  # pluggy reads the signature only

    @hookspec
    def opwheel_runtime(self) -> Runtime:
        """Describe kernels for a runtime that is not PyTorch's dispatcher. Called whenever somebody asks for them.

        It must not open libraries.
        """
        raise NotImplementedError  # pragma: no cover  # pluggy reads the signature only


def call_through_pluggy(plugin: object, name: str, hook: str) -> list[object] | None:
    """Call a plugin's implementation of a hook.

    Args:
        plugin: what its entry point names, a module as a rule.
        name: of the plugin.
        hook: name of one of :class:`PluginHooks`.

    Returns:
        What it has returned, in a list; None where the plugin has no hook.

    Raises:
        Exception: whatever the hook raises, and pluggy's errors for a plugin that is not as it is to be.
    """
    # A manager for each plugin: what is wrong with one never gets in the way of another, nor of a second attempt.
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(PluginHooks)
    manager.register(plugin, name)
    manager.check_pending()
    caller = getattr(manager.hook, hook)
    return list(caller()) if caller.get_hookimpls() else None
