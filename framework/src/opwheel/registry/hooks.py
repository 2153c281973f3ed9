"""The one hook of the plugin interface."""

from __future__ import annotations

import pluggy

from .backend import Backend

PROJECT = "opwheel"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class BackendHooks:
    """What a plugin module may implement."""

    @hookspec
    def opwheel_backend(self) -> Backend:
        """Describe the backend. Called once, at import time of the operator library; it must not open libraries."""
        raise NotImplementedError  # pragma: no cover  # pluggy reads the signature only
