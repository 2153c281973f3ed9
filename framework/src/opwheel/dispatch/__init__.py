"""What an operator library registers in PyTorch's dispatcher for each operator, one module for each dispatch key.

============================  ==================================================================================
module                        dispatch key
============================  ==================================================================================
:mod:`.autocast`              AutocastCPU, AutocastCUDA, AutocastXPU
:mod:`.vmap`                  FuncTorchBatched (vmap)
:mod:`.native_autograd`                Autograd, ADInplaceOrView, in C++ where there is a library for this PyTorch
:mod:`.autograd`              Autograd, where it is in Python
:mod:`.adinplaceorview`       ADInplaceOrView (counts modifications), where it is in Python
:mod:`.rules.elementwise`     Functionalize (in-place and out variants under torch.compile)
:mod:`.fake`                  Meta and FakeTensor
:mod:`.fallback`              CompositeExplicitAutogradNonFunctional: no backend has a kernel;
                              CompositeImplicitAutogradNestedTensor: nested tensors are refused
:mod:`.backend_select`        BackendSelect (operators without tensors)
============================  ==================================================================================

All of it follows from an :class:`Operator` declaration, its reference and its rule (:mod:`.rules`). So do the public
functions (:mod:`.functions`). It begins in :mod:`.opening`.
"""

from typing import TYPE_CHECKING

from .._import_hooks import names_from
from .autocast_policy import Autocast
from .declaration import Operator
from .functions import functions_of, operators_of
from .opening import Library, open_library
from .registration import overloads_of, register
from .rules import Elementwise, Opaque, Rule
from .sharded_reduction import LocalShard, ShardedReduction

if TYPE_CHECKING:
    from .decompositions import decomposition_table
    from .defining import define
    from .python_kernels import implement, implement_functions, implement_references, in_compute_dtype
    from .python_operators import register_python
    from .rules import Rows

# What not every program has: operators that are not element-wise, kernels and operators in Python, exports, tests.
__getattr__ = names_from(
    __name__,
    {
        "implement": ".python_kernels",
        "implement_functions": ".python_kernels",
        "implement_references": ".python_kernels",
        "in_compute_dtype": ".python_kernels",
        "decomposition_table": ".decompositions",
        "define": ".defining",
        "register_python": ".python_operators",
        "Rows": ".rules",
    },
)

__all__ = [
    "Autocast",
    "Elementwise",
    "Library",
    "LocalShard",
    "Opaque",
    "Operator",
    "Rows",
    "Rule",
    "ShardedReduction",
    "decomposition_table",
    "define",
    "functions_of",
    "implement",
    "implement_functions",
    "implement_references",
    "in_compute_dtype",
    "open_library",
    "operators_of",
    "overloads_of",
    "register",
    "register_python",
]
