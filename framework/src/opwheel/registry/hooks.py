"""The hooks of the plugin interface: one for each kind of plugin, all by pluggy's convention.

A plugin's entry point names a module, and the module has a function that is marked with ``@hookimpl`` and has the
hook's name. The entry point's group says which hook is asked: ``<namespace>.backends`` or ``<namespace>.runtimes``.
"""

from __future__ import annotations

import pluggy

from .backend import Backend, Runtime

PROJECT = "opwheel"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


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
