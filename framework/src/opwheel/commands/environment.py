"""What a command changes in the environment before its library is imported.

``doctor`` tells how an installation differs from the lock file, so its import of the library must not fail because of
it; ``doctor --deep`` opens each backend in a process of its own, so its import must not open them.
"""

from __future__ import annotations

import os

removed: dict[str, str] = {}  # environment variables that were taken away, with their values


def ignore_lock(prefix: str) -> None:
    """Let the next import go on although the installation is not what is locked."""
    name = f"{prefix}_LOCK"
    if name in os.environ:
        removed[name] = os.environ.pop(name)


def open_no_backend(prefix: str) -> None:
    """Let the next import open no backend."""
    os.environ[f"{prefix}_AUTOLOAD"] = "0"
