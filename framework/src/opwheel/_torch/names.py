"""Every name of PyTorch that is not public and that opwheel uses, and what happens in a PyTorch that lacks it.

A table, which is read where a name is missing, and by tests: :mod:`.lookup` finds what the names stand for.

The native libraries use private parts of PyTorch's C++ interface as well: the layout of ``THPVariable``,
``torch::autograd::impl``, ``SavedVariable``, compiled autograd's packing. They are compiled for each minor release, and
where there is none, derivatives and calls take their paths in Python (:mod:`.native`).
"""

from __future__ import annotations

from typing import NamedTuple


class Name(NamedTuple):
    """A private name: a path that begins at ``torch``, or at an object of ``torch.library.Library``.

    ``since`` is the oldest release that has it, of those that opwheel supports (2.10 and later). ``lazy`` names are in
    modules that ``import torch`` does not import.
    """

    path: str
    purpose: str
    without: str
    since: str = "2.10"
    lazy: bool = False


FOR_USERS = (
    "torch._dynamo",
    "torch._inductor.aoti",
    "torch._subclasses.fake_tensor",
    "torch.utils._pytree",
    "torch.utils._python_dispatch.TorchDispatchMode",
)
"""How names begin that have an underscore, and that PyTorch's documentation tells users to use: not listed below."""

_IN_PYTHON = "derivatives in Python, where there is no native library, raise"
_WRITES_IN_PYTHON = "calls that write raise where there is no native library"
_MEMORY = "calls in which memory has to be compared raise"
_LIBRARIES = "no library of operators can be opened"
_CLAIMS = "no backend is loaded, as nothing says what it registers (OPWHEEL-E034)"
_COMPILED = "torch.compile and torch.export of calls that write raise"
_COPIES = "libraries with operators that write, but for element-wise ones, cannot be opened"
_MORE_COPIES = "torch.compile copies more than it has to"
_FUSED = "torch.compile does not fuse operators"
_FOREIGN = "kernels for operators that others define cannot be switched on"
_SHARDING = "DTensor does not know the operators"
_REDUCTIONS = "DTensor gathers dimensions that are reduced"
_CHECKPOINTS = "policies of selective checkpointing see the operator for training alone"

NAMES = {
    name.path: name
    for name in (
        # Contexts and sets of keys with which a kernel calls what comes after it.
        Name("torch._C._AutoDispatchBelowAutograd", "to call what is below the Autograd key", _IN_PYTHON),
        Name("torch._C._AutoDispatchBelowADInplaceOrView", "to call what is below ADInplaceOrView", _WRITES_IN_PYTHON),
        Name("torch._C._after_autograd_keyset", "to pass a call on to the keys after Autograd", _IN_PYTHON),
        Name("torch._C._after_ADInplaceOrView_keyset", "to pass a call on after counting a write", _WRITES_IN_PYTHON),
        Name("torch._C._ExcludeDispatchKeyGuard", "to skip a key", "torch.autocast raises"),
        Name("torch._C.DispatchKeySet", "to make sets of dispatch keys", "torch.autocast raises"),
        Name("torch._C.DispatchKey", "to name dispatch keys", _LIBRARIES),
        Name("torch.ops.aten.neg.default._handle", "to pass a call on without a frame of Python", _IN_PYTHON),
        # What a call is made under.
        Name("torch._C._are_functorch_transforms_active", "to know whether torch.func transforms a call", _IN_PYTHON),
        Name("torch._C._any_requires_grad", "to know whether a gradient is recorded", _IN_PYTHON),
        Name("torch.autograd.forward_ad._current_level", "to know whether tensors may carry tangents", _IN_PYTHON),
        Name("torch._C._is_any_autocast_enabled", "to know whether torch.autocast is on", "torch.autocast raises"),
        Name("torch._C._len_torch_dispatch_stack", "to know whether a dispatch mode is entered", _CHECKPOINTS),
        Name("torch.utils._python_dispatch._get_current_dispatch_mode_stack", "to find dispatch modes", _CHECKPOINTS),
        Name("torch.utils.checkpoint._CachingTorchDispatchMode", "to find policies", _CHECKPOINTS, lazy=True),
        Name("torch.utils.checkpoint._CachedTorchDispatchMode", "to find policies", _CHECKPOINTS, lazy=True),
        Name("torch._C._get_dispatch_mode", "to know whether a compiler removes mutation", _COMPILED),
        Name("torch._C._TorchDispatchModeKey", "to know whether a compiler removes mutation", _COMPILED),
        # Tensors.
        Name("torch._C._has_storage", "to tell tensors without memory", _MEMORY),
        Name("torch._C._data_address", "to find a tensor's memory without copying it", _MEMORY),
        Name("torch._C._is_alias_of", "to know whether two tensors have one storage", _MEMORY),
        Name("torch.UntypedStorage._cdata", "to tell storages apart", _MEMORY),
        Name("torch._C._functorch.is_functorch_wrapped_tensor", "to look beneath wrappers of torch.func", _MEMORY),
        Name("torch._C._functorch.get_unwrapped", "to look beneath wrappers of torch.func", _MEMORY),
        Name("torch.Tensor._base", "to refuse writes to views that cannot be differentiated", _IN_PYTHON),
        Name("torch.Tensor._is_view", "to refuse writes to views that cannot be differentiated", _IN_PYTHON),
        Name("torch._C._autograd._get_creation_meta", "to refuse writes to one of several views", _IN_PYTHON),
        Name("torch._C._autograd.CreationMeta", "to refuse writes to one of several views", _IN_PYTHON),
        Name("torch.Tensor._cdata", "to know whether tensors are laid out as expected", "small calls are slower"),
        Name("torch._C._get_privateuse1_backend_name", "to know the device of a package", "such devices are unknown"),
        # Schemas, and what the dispatcher has.
        Name("torch._C.parse_schema", "to read schemas", _LIBRARIES),
        Name("torch.ops.aten.neg.default._schema", "to read schemas of overloads", "it takes longer"),
        Name("torch.ops.aten.neg.default._op", "to call operators without a frame of Python", "calls are slower"),
        Name("torch._C._dispatch_library", "to register kernels", _LIBRARIES),
        Name("torch._C._dispatch_find_schema_or_throw", "to read registered schemas", _LIBRARIES),
        Name("torch._C._get_operation_overload", "to know whether an operator is defined", "it takes longer"),
        Name("torch._C._dispatch_get_all_op_names", "to list operators", _CLAIMS),
        Name("torch._C._dispatch_has_kernel_for_dispatch_key", "to see what a backend registered", _LIBRARIES),
        Name("torch._C._dispatch_keyset_full", "to list dispatch keys", _LIBRARIES),
        Name("torch._C._dispatch_key_parse", "to list dispatch keys", "some rare ones are not known"),
        Name("torch._C._dispatch_key_for_device", "to know the key of a device", "it is taken to have its name"),
        Name("torch._C._dispatch_dump", "to see what plugins register", _CLAIMS),
        Name("torch._C._jit_resolve_packet", "to record calls of composite operators", "opwheel audit records none"),
        Name("torch._C._dispatch_dump_table", "to see what plugins register", _CLAIMS),
        Name("torch._C._dispatch_find_dangling_impls", "to see what plugins register", _CLAIMS),
        Name("torch._C._dispatch_has_backend_fallback", "to see what plugins register", _CLAIMS),
        Name("torch.library._defs", "to list operators that torch.library has defined", _CLAIMS),
        Name("torch.library.Library._destroy", "to remove registrations", "plugins that fail keep their registrations"),
        Name("Library._registration_handles", "to register fake kernels", "opening a library takes longer"),
        Name("torch._library.simple_registry.singleton", "to register fake kernels", "opening a library takes longer"),
        # DTensor.
        Name("torch.distributed.tensor.DTensor._op_dispatcher", "to register placements", _SHARDING, lazy=True),
        Name("torch.distributed.tensor._op_schema.RuntimeSchemaInfo", "to register placements", _SHARDING, lazy=True),
        Name(
            "torch.distributed.tensor._ops.utils.expand_to_full_mesh_op_strategy",
            "to register placements",
            _SHARDING,
            lazy=True,
        ),
        Name(
            "torch.distributed.tensor.DTensor._op_dispatcher._dispatch_get_local_results_slow_path",
            "to compute on sharded dimensions",
            _REDUCTIONS,
            lazy=True,
        ),
        Name(
            "torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator._propagate_tensor_meta",
            "to compute on sharded dimensions",
            _REDUCTIONS,
            lazy=True,
        ),
        # Kernels for operators that others define.
        Name("torch._C._len_torch_function_stack", "to know whether a mode of torch function is entered", _FOREIGN),
        Name("torch._C._dispatch_tls_is_dispatch_key_included", "to know who dispatches", _FOREIGN),
        Name("torch._subclasses.fake_tensor.FakeTensor", "to know tensors of torch.compile", _FOREIGN, lazy=True),
        # Functionalization, torch.func and torch.compile.
        Name("torch._is_functional_tensor_base", "to remove mutation from a graph", _COMPILED),
        Name("torch._is_functional_tensor", "to remove mutation from a graph", _COMPILED),
        Name("torch._from_functional_tensor", "to remove mutation from a graph", _COMPILED),
        Name("torch._to_functional_tensor", "to test kernels with functional tensors", "such tests fail"),
        Name("torch._functionalize_replace", "to remove mutation from a graph", _COMPILED),
        Name("torch._functionalize_commit_update", "to remove mutation from a graph", _COMPILED),
        Name("torch._functionalize_sync", "to remove mutation from a graph", _COMPILED),
        Name("torch._subclasses.functional_tensor.FunctionalTensor", "to keep copies", _COPIES, lazy=True),
        Name("torch._subclasses.functional_tensor.FunctionalTensorMode", "to keep copies", _COPIES, lazy=True),
        Name("torch._higher_order_ops.auto_functionalize.get_base", "to keep copies", _COPIES, lazy=True),
        Name("torch.fx.experimental.proxy_tensor.get_proxy_slot", "to keep copies", _COPIES, lazy=True),
        Name("torch.ops.aten.neg.default._op_dk", "to keep copies", _COPIES),
        Name("torch.ops.aten.neg.default.python_key_table", "to keep copies", _COPIES),
        Name("torch.ops.aten.neg.default._dispatch_cache", "to keep copies", _COPIES),
        Name("torch._inductor.lowering.clone", "to remove copies", _MORE_COPIES, lazy=True),
        Name(
            "torch._inductor.lowering.register_lowering",
            "to remove copies",
            "torch.compile copies more than it has to",
            lazy=True,
        ),
        Name("torch._inductor.virtualized.V", "to remove copies", _MORE_COPIES, lazy=True),
        Name("torch.compiler.config._config", "to tell compile caches apart", "only one thread does"),
        Name("torch.utils._triton.has_triton", "to know whether inductor compiles", "tests of it fail", lazy=True),
        Name("torch._inductor.decomposition.decompositions", "to fuse element-wise operators", _FUSED, lazy=True),
        Name("torch._inductor.decomposition.fast_random_decomps", "to fuse element-wise operators", _FUSED, lazy=True),
        Name(
            "torch._dynamo.decorators.substitute_in_graph",
            "to let torch.compile see calls of public functions",
            "torch.compile breaks the graph at them",
            lazy=True,
        ),
        Name(
            "torch._functorch.autograd_function.custom_function_call_vmap_helper",
            "to register rules of vmap",
            "torch.vmap raises",
            lazy=True,
        ),
        Name(
            "torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter",
            "to register rules of vmap",
            "torch.vmap raises",
            lazy=True,
        ),
        Name(
            "torch._subclasses.fake_tensor.FakeTensorMode",
            "to check kernels in Python whose results' sizes depend on values",
            "they are not checked",
            lazy=True,
        ),
    )
}
