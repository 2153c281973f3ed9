"""What core registers in PyTorch's dispatcher for each operator, one module for each dispatch key.

============================  ==================================================================================
module                        dispatch key
============================  ==================================================================================
:mod:`.autocast`              AutocastCPU, AutocastCUDA, AutocastXPU
:mod:`.vmap`              FuncTorchBatched (vmap)
:mod:`.autograd`              Autograd
:mod:`.adinplaceorview`              ADInplaceOrView (version counters of in-place and out variants)
:mod:`.functionalization`     Functionalize (in-place and out variants under torch.compile)
:mod:`.fake`                  Meta and FakeTensor
:mod:`.fallback`               CompositeExplicitAutogradNonFunctional: no backend has a kernel;
                              CompositeImplicitAutogradNestedTensor: nested tensors are refused
============================  ==================================================================================

:mod:`.fast_path` is the public functions' way around all of them for calls that none of them would change.

All of it follows from an :class:`Operator` declaration; any operator library can use it for its own operators.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .declaration import JointGradient, Operator
from .elementwise import decomposition_table
from .registration import register

if TYPE_CHECKING:
    from .python_kernels import implement, in_compute_dtype
    from .python_operators import register_python

# For kernels and operators in Python, which most programs do not have.
_LATER = {"implement": ".python_kernels", "in_compute_dtype": ".python_kernels", "register_python": ".python_operators"}

__all__ = [
    "JointGradient",
    "Operator",
    "decomposition_table",
    "implement",
    "in_compute_dtype",
    "register",
    "register_python",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
