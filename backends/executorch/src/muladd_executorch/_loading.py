"""Registers the kernels with the ExecuTorch runtime of this process."""

from __future__ import annotations

import ctypes
import os
import threading
from importlib import metadata

from ._custom_ops_yaml import names_in
from ._files import custom_ops_yaml, library

SUPPORTED = "executorch>=1.5,<1.6"
_FIRST, _AFTER_LAST = (1, 5), (1, 6)
_lock = threading.Lock()


def load() -> tuple[str, ...]:
    """Register the kernels, if they are not registered yet, and return the names of their operators.

    Raises:
        ImportError: ExecuTorch is missing or of an unsupported version, or the library cannot be opened.
    """
    _check_version()
    # The runtime first: its Python package knows where its libraries are.
    from executorch.runtime import Runtime

    registry = Runtime.get().operator_registry
    names = names_in(custom_ops_yaml.read_text())
    with _lock:
        if not set(names) <= set(registry.operator_names):
            try:
                ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            except OSError as error:
                raise ImportError(f"muladd-executorch cannot open its library: {error}; reinstall it") from error
            missing = sorted(set(names) - set(registry.operator_names))
            if missing:
                raise ImportError(
                    f"{library} was opened, but the runtime of this process has no kernel for {', '.join(missing)}: "
                    "the library belongs to another copy of ExecuTorch; install both into one environment"
                )
    return names


def _check_version() -> None:
    try:
        version = metadata.version("executorch")
    except metadata.PackageNotFoundError as error:
        raise ImportError(f"muladd-executorch needs ExecuTorch: pip install '{SUPPORTED}'") from error
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if not _FIRST <= release < _AFTER_LAST:
        raise ImportError(
            f"muladd-executorch needs {SUPPORTED}, but executorch {version} is installed: pip install '{SUPPORTED}'"
        )
