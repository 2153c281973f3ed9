"""What tests and benchmarks need of an operator's declaration, apart from what is registered for it.

Read in this order: ``samples`` (calls), ``declaration`` (:class:`OpInfo`, all of one operator), ``lookup`` (where an
operator's is found), ``out_variant`` (that of ``name.out``, which follows from that of ``name``).

Importing this package imports neither torch nor a library.
"""

from .declaration import OpInfo
from .samples import ErrorSample, Sample, Tolerance

__all__ = ["ErrorSample", "OpInfo", "Sample", "Tolerance"]
