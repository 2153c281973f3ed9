"""The operators of transformer_ops, with kernels from separately installed backends."""

import opwheel

from ._version import __version__
from .operators import OPERATORS

library = opwheel.open_library(__name__, OPERATORS, distribution="transformer-ops-core", version=__version__)

backends, require, load = library.backends, library.require, library.load
decompositions, get_include = library.decompositions, library.get_include
globals().update(library.functions)

from .accelerating import accelerate_torch, restore_torch  # noqa: E402  # they need the library
from .hugging_face import Patch, patch, register_family, unpatch  # noqa: E402  # they call the operators
from .losses import cross_entropy, fused_linear_cross_entropy  # noqa: E402  # they call the operators
from .modules import (  # noqa: E402  # they call the operators
    GEGLU,
    CrossEntropyLoss,
    FusedLinearCrossEntropyLoss,
    LayerNorm,
    Linear,
    RMSNorm,
    SwiGLU,
)

__all__ = [
    "GEGLU",
    "CrossEntropyLoss",
    "FusedLinearCrossEntropyLoss",
    "LayerNorm",
    "Linear",
    "Patch",
    "RMSNorm",
    "SwiGLU",
    "__version__",
    "accelerate_torch",
    "backends",
    "cross_entropy",
    "decompositions",
    "fused_linear_cross_entropy",
    "get_include",
    "library",
    "load",
    "patch",
    "register_family",
    "require",
    "restore_torch",
    "unpatch",
    *library.functions,
]

library.load_backends()  # last, as their code may use all of the above
