"""Finds installed backends: one scan of the installed metadata, each entry point loaded in isolation."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import pluggy

from .backend import Backend
from .errors import InvalidBackendError
from .hooks import PROJECT, BackendHooks


@dataclass(frozen=True)
class FoundPlugin:
    """An entry point, not imported yet."""

    name: str
    distribution: str
    version: str
    entry_point: metadata.EntryPoint

    @property
    def is_being_imported(self) -> bool:
        """Whether the module's own import is what led here: its hook does not exist yet."""
        module = sys.modules.get(self.entry_point.module)
        return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class PluginError(Exception):
    """Reading a plugin failed; ``code`` says at which step, ``__cause__`` is the original."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def find_plugins(group: str) -> Iterator[FoundPlugin]:
    """Every entry point of the group. Of a distribution that is on sys.path twice, the first counts, as in Python."""
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt")
        except (OSError, UnicodeDecodeError):
            # Unreadable metadata of some distribution: whether it is a plugin of ours cannot be known.
            continue
        if not text or group not in text:
            continue
        name = str(distribution.metadata["Name"])
        normalized = re.sub(r"[-_.]+", "-", name).lower()
        if normalized in seen:
            continue
        seen.add(normalized)
        for entry_point in distribution.entry_points:
            if entry_point.group == group:
                yield FoundPlugin(entry_point.name, normalized, distribution.version, entry_point)


def new_plugin_manager() -> pluggy.PluginManager:
    """A manager that knows the hook and no plugin yet."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(BackendHooks)
    return manager


def read_backend(plugin: FoundPlugin, manager: pluggy.PluginManager) -> Backend:
    """Import the plugin's module, register it with ``manager`` and ask its hook.

    Raises:
        PluginError: for whatever goes wrong in it, ``SystemExit`` included; only a KeyboardInterrupt passes.
    """
    try:
        module = plugin.entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError("MULADD-E020", f"importing {plugin.entry_point.value} failed") from error
    backend = _call_hook(plugin, module, manager)
    if not isinstance(backend, Backend):
        raise PluginError(
            "MULADD-E021", f"the hook of {plugin.entry_point.value} returned {backend!r}, expected a Backend"
        )
    if backend.name != plugin.name:
        raise PluginError(
            "MULADD-E022", f"the entry point is called {plugin.name!r}, but its backend names itself {backend.name!r}"
        )
    return backend


def _call_hook(plugin: FoundPlugin, module: object, manager: pluggy.PluginManager) -> object:
    try:
        manager.register(module, plugin.name)
        others = [other for name, other in manager.list_name_plugin() if name != plugin.name and other is not None]
        results = manager.subset_hook_caller("muladd_backend", remove_plugins=others)()
    except KeyboardInterrupt:
        raise
    except InvalidBackendError as error:
        raise PluginError(error.code, str(error)) from error
    except BaseException as error:
        raise PluginError("MULADD-E021", f"the hook of {plugin.entry_point.value} failed") from error
    # pluggy leaves out hooks that return None, and modules without the hook.
    return results[0] if results else None
