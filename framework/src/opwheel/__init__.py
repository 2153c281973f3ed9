"""The framework under operator libraries: registry of backends, dispatch rules, C++ SDK, build, conformance kit.

Importing it does nothing: no discovery, no library is opened, no operator is registered. A plugin needs three names::

    from opwheel import Backend, Probe, hookimpl
"""

from pathlib import Path

from ._version import __version__
from .registry import Backend, Probe, hookimpl


def get_include() -> str:
    """The folder of the C++ SDK's headers, for ``-I``."""
    return str(Path(__file__).parent / "include")


__all__ = ["Backend", "Probe", "__version__", "get_include", "hookimpl"]
