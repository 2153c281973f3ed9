"""The plugin framework: finds, chooses and loads the backends of an operator library. It knows no operator by name.

A plugin needs three names from here::

    from opwheel.registry import Backend, Probe, hookimpl

No module in here says ``from . import name`` or ``from .. import name``: both wait for the import of the whole package,
which another thread may be in the middle of, waiting in turn for this one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .backend import Backend, Probe
from .errors import (
    ERROR_CODES,
    BackendUnavailableError,
    ErrorCode,
    InvalidBackendError,
    LockError,
    NoKernelError,
    PolicyError,
    RegistryError,
)
from .explanation import Choice
from .hooks import hookimpl, hookspec
from .library import OperatorLibrary
from .policy import KnownBackend, KnownRuntime, Policy, read_file
from .status import BackendStatus, Finding, State

if TYPE_CHECKING:
    from .runtimes import Runtime

__all__ = [
    "ERROR_CODES",
    "Backend",
    "BackendStatus",
    "BackendUnavailableError",
    "Choice",
    "ErrorCode",
    "Finding",
    "InvalidBackendError",
    "KnownBackend",
    "KnownRuntime",
    "LockError",
    "NoKernelError",
    "OperatorLibrary",
    "Policy",
    "PolicyError",
    "Probe",
    "RegistryError",
    "Runtime",
    "State",
    "hookimpl",
    "hookspec",
    "read_file",
]


def __getattr__(name: str) -> Any:
    if name == "Runtime":  # which only kernels for other runtimes need
        return import_module(".runtimes", __name__).Runtime
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
