"""The framework under operator libraries: registry of backends, dispatch rules, memory, diagnostics.

Importing it does nothing: no discovery, no library is opened, no operator is registered, and torch is not imported.

An operator library opens itself with :func:`open_library`. A backend's plugin needs three names::

    from opwheel import Backend, Probe, hookimpl

:func:`probe_device` is the probe of one that needs a device and nothing else.

One with kernels for another runtime needs :class:`Runtime` and ``hookimpl``.
"""

from typing import TYPE_CHECKING

from ._import_hooks import names_from
from ._version import __version__

if TYPE_CHECKING:
    from .dispatch import (
        Autocast,
        Elementwise,
        Library,
        LocalShard,
        Opaque,
        Operator,
        Rows,
        ShardedReduction,
        define,
        functions_of,
        open_library,
        operators_of,
    )
    from .foreign import ForeignKernel
    from .registry import Backend, Probe, Runtime, hookimpl, probe_device

__getattr__ = names_from(
    __name__,
    {
        **dict.fromkeys(("Backend", "Probe", "Runtime", "hookimpl", "probe_device"), ".registry"),
        "ForeignKernel": ".foreign",
        **dict.fromkeys(
            (
                *("Autocast", "Elementwise", "Library", "LocalShard", "Opaque", "Operator", "Rows", "ShardedReduction"),
                *("define", "functions_of", "open_library", "operators_of"),
            ),
            ".dispatch",
        ),
    },
)


__all__ = [
    "Autocast",
    "Backend",
    "Elementwise",
    "ForeignKernel",
    "Library",
    "LocalShard",
    "Opaque",
    "Operator",
    "Probe",
    "Rows",
    "Runtime",
    "ShardedReduction",
    "__version__",
    "define",
    "functions_of",
    "hookimpl",
    "open_library",
    "operators_of",
    "probe_device",
]
