"""What authors and judges of operator libraries use: C++ SDK, build, scaffolds, conformance kit, audit, bench.

Production needs ``opwheel`` alone, which never imports this package; it finds its commands through entry points.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from opwheel._import_hooks import names_from

from ._version import __version__
from .opinfo import ErrorSample, OpInfo, Sample, Tolerance
from .schema_changes import breaking_changes

if TYPE_CHECKING:
    from .just_in_time import define_cpp

__getattr__ = names_from(__name__, {"define_cpp": ".just_in_time"})


def get_include() -> str:
    """The folder of the C++ SDK's headers, for ``-I``."""
    return str(Path(__file__).parent / "include")


__all__ = [
    "ErrorSample",
    "OpInfo",
    "Sample",
    "Tolerance",
    "__version__",
    "breaking_changes",
    "define_cpp",
    "get_include",
]
