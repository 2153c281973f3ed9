"""Fused multiply-add operators for PyTorch, with kernels from separately installed backends.

>>> import muladd, torch
>>> muladd.muladd(torch.ones(3), torch.ones(3), 2.0)
tensor([3., 3., 3.])
"""

import opwheel

from ._version import __version__
from .operators import OPERATORS

library = opwheel.open_library(__name__, OPERATORS, distribution="muladd-core", version=__version__)

backends, require, load = library.backends, library.require, library.load
decompositions, get_include = library.decompositions, library.get_include
globals().update(library.functions)

__all__ = [
    "__version__",
    "backends",
    "decompositions",
    "get_include",
    "library",
    "load",
    "require",
    *library.functions,
]

library.load_backends()  # last, as their code may use all of the above


def __dir__() -> list[str]:
    return __all__
