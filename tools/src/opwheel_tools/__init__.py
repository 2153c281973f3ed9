"""What authors and judges of operator libraries use: C++ SDK, build, scaffolds, conformance kit, audit, bench.

Production needs ``opwheel`` alone, which never imports this package; it finds its commands through entry points.
"""

from pathlib import Path

from ._version import __version__
from .opinfo import ErrorSample, OpInfo, Sample, Tolerance


def get_include() -> str:
    """The folder of the C++ SDK's headers, for ``-I``."""
    return str(Path(__file__).parent / "include")


__all__ = ["ErrorSample", "OpInfo", "Sample", "Tolerance", "__version__", "get_include"]
