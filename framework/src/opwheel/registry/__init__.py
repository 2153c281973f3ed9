"""The plugin framework: finds, chooses and loads the backends of an operator library. It knows no operator by name.

Nothing in here is imported with the package but what a plugin needs, so that a plugin's module can be imported without
torch. No module in here says ``from . import name`` or ``from .. import name``: both wait for the import of the whole
package, which another thread may be in the middle of, waiting in turn for this one.
"""

from typing import TYPE_CHECKING

from .._import_hooks import names_from
from .backend import Backend, Probe, Runtime
from .errors import (
    BackendUnavailableError,
    InvalidBackendError,
    LockError,
    NoKernelError,
    PolicyError,
    RegistryError,
)
from .hooks import hookimpl
from .status import BackendStatus, Finding, State

if TYPE_CHECKING:
    from .devices import probe_device
    from .error_codes import ERROR_CODES, ErrorCode
    from .explanation import Choice
    from .library import OperatorLibrary
    from .pluggy_hooks import hookspec
    from .policy import KnownBackend, KnownRuntime, Policy, read_file

__getattr__ = names_from(
    __name__,
    {
        **dict.fromkeys(("ERROR_CODES", "ErrorCode"), ".error_codes"),
        "probe_device": ".devices",
        "Choice": ".explanation",
        "OperatorLibrary": ".library",
        "hookspec": ".pluggy_hooks",
        **dict.fromkeys(("KnownBackend", "KnownRuntime", "Policy", "read_file"), ".policy"),
    },
)

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
    "probe_device",
    "read_file",
]
