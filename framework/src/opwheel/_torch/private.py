"""What opwheel does with private names of PyTorch (:mod:`.names` lists them): nothing else in it uses any.

tests/unit/test_torch_private.py tests each function, and tests/processes/test_missing_names.py hides each name.
"""

from __future__ import annotations

import _ctypes
import ctypes
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree  # its own documentation has it for users

from .names import NAMES, Missing, find, holder, in_words

below_autograd = find("torch._C._AutoDispatchBelowAutograd")
below_version_bump = find("torch._C._AutoDispatchBelowADInplaceOrView")
functorch_is_active = find("torch._C._are_functorch_transforms_active")
any_requires_grad = find("torch._C._any_requires_grad")
has_storage = find("torch._C._has_storage")  # tensors of torch.func have none
address = find("torch._C._data_address")  # 0 for fake tensors, for which data_ptr() raises
is_alias = find("torch._C._is_alias_of")  # whether two tensors have one storage
is_wrapped = find("torch._C._functorch.is_functorch_wrapped_tensor")  # by torch.func, or functionalization
_after_autograd = find("torch._C._after_autograd_keyset")
_after_version_bump = find("torch._C._after_ADInplaceOrView_keyset")
parse_schema = find("torch._C.parse_schema")  # of a schema's text: with ``arguments`` and ``returns``
every_operator = find("torch._C._dispatch_get_all_op_names")  # with a schema or a kernel, and the namespace
has_fallback = find("torch._C._dispatch_has_backend_fallback")  # a key, of the enumeration

_dispatch_has_kernel_for_dispatch_key = find("torch._C._dispatch_has_kernel_for_dispatch_key")
_singleton = find("torch._library.simple_registry.singleton")
_dispatch_find_schema_or_throw = find("torch._C._dispatch_find_schema_or_throw")
_dispatch_find_dangling_impls = find("torch._C._dispatch_find_dangling_impls")
_get_creation_meta = find("torch._C._autograd._get_creation_meta")
_len_torch_dispatch_stack = find("torch._C._len_torch_dispatch_stack")
_functionalize_commit_update = find("torch._functionalize_commit_update")
_dispatch_key_for_device = find("torch._C._dispatch_key_for_device")
_ExcludeDispatchKeyGuard = find("torch._C._ExcludeDispatchKeyGuard")
_get_unwrapped = find("torch._C._functorch.get_unwrapped")
_is_any_autocast_enabled = find("torch._C._is_any_autocast_enabled")
_get_operation_overload = find("torch._C._get_operation_overload")
_is_functional_tensor_base = find("torch._is_functional_tensor_base")
_CreationMeta = find("torch._C._autograd.CreationMeta")
_dispatch_keyset_full = find("torch._C._dispatch_keyset_full")
_TorchDispatchModeKey = find("torch._C._TorchDispatchModeKey")
_dispatch_dump_table = find("torch._C._dispatch_dump_table")
_from_functional_tensor = find("torch._from_functional_tensor")
_dispatch_key_parse = find("torch._C._dispatch_key_parse")
_functionalize_replace = find("torch._functionalize_replace")
_is_functional_tensor = find("torch._is_functional_tensor")
_get_dispatch_mode = find("torch._C._get_dispatch_mode")
_dispatch_library = find("torch._C._dispatch_library")
_to_functional_tensor = find("torch._to_functional_tensor")
_functionalize_sync = find("torch._functionalize_sync")
_dispatch_dump = find("torch._C._dispatch_dump")
_DispatchKeySet = find("torch._C.DispatchKeySet")
_DispatchKey = find("torch._C.DispatchKey")
_defs = find("torch.library._defs")
_get_current_dispatch_mode_stack = find("torch.utils._python_dispatch._get_current_dispatch_mode_stack")
_get_privateuse1_backend_name = find("torch._C._get_privateuse1_backend_name")
_forward_ad = holder("torch.autograd.forward_ad._current_level")
_is_view = find("torch.Tensor._is_view")
_destroy = find("torch.library.Library._destroy")


_found = cache(find)
_COPYING = (
    "torch._subclasses.functional_tensor.FunctionalTensor",
    "torch._subclasses.functional_tensor.FunctionalTensorMode",
    "torch._higher_order_ops.auto_functionalize.get_base",
    "torch.fx.experimental.proxy_tensor.get_proxy_slot",
    "torch.ops.aten.neg.default._op_dk",
    "torch.ops.aten.neg.default.python_key_table",
    "torch.ops.aten.neg.default._dispatch_cache",
)
_FAST_RANDOM = "torch._inductor.decomposition.fast_random_decomps"


def _is_missing(path: str) -> bool:
    return isinstance(_found(path), Missing)


def _attribute(of: Any, name: str, path: str) -> Any:
    """An object's attribute, or what raises in its place where objects of its kind have none in this PyTorch."""
    found = _found(path)
    return found if isinstance(found, Missing) else getattr(of, name)


def schema(op: Any) -> Any:
    """The schema of an overload, with ``arguments`` and ``returns``."""
    return schema_of(op.name())


def storage_address(storage: torch.UntypedStorage) -> int:
    """Where the object of C++ is that a storage is in Python: equal for those that share memory."""
    address: int = _attribute(storage, "_cdata", "torch.UntypedStorage._cdata")
    return address


def after_autograd(keys: Any) -> Any:
    """Those of a set of keys that come after Autograd."""
    return _after_autograd & keys


def after_version_bump(keys: Any) -> Any:
    """Those of a set of keys that come after ADInplaceOrView."""
    return _after_version_bump & keys


def layers(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor, and beneath it those that transforms of ``torch.func``, and functionalization, have wrapped."""
    yield tensor
    while is_wrapped(tensor):
        tensor = _get_unwrapped(tensor)
        yield tensor


def any_autocast_is_enabled() -> bool:
    """Whether ``torch.autocast`` is on for some device type."""
    return bool(_is_any_autocast_enabled())


def forward_ad_is_active() -> bool:
    """Whether some ``forward_ad.dual_level()`` is entered, so that tensors may carry tangents."""
    return bool(_forward_ad._current_level >= 0)


def keyset(key: str) -> Any:
    """A set of one dispatch key."""
    return _DispatchKeySet(getattr(_DispatchKey, key))


def operation(op: Any) -> Callable[..., Any]:
    """An overload's call without the frame of Python around it."""
    function: Callable[..., Any] = op if _is_missing("torch.ops.aten.neg.default._op") else op._op
    return function


def set_operation(op: Any, function: Callable[..., Any]) -> None:
    """Give an overload another function to call, which changes its hash."""
    if not _is_missing("torch.ops.aten.neg.default._op"):
        op._op = function


def tensor_address(tensor: torch.Tensor) -> int | None:
    """Where the object of C++ is that a tensor is in Python; None where PyTorch does not say."""
    return None if _is_missing("torch.Tensor._cdata") else tensor._cdata


def redispatch(op: Any) -> Callable[..., Any]:
    """``op.redispatch`` without the frame of Python around it: called with a set of dispatch keys and the arguments."""
    function: Callable[..., Any] = _attribute(op, "_handle", "torch.ops.aten.neg.default._handle").redispatch_boxed
    return function


def without_dispatch_key(key: str) -> Any:
    """A context in which the dispatcher skips ``key``."""
    return _ExcludeDispatchKeyGuard(keyset(key))


@contextmanager
def below_autograd_and_autocast() -> Iterator[None]:
    """A context in which the dispatcher skips the keys at which PyTorch's own kernels are not asked again."""
    with ExitStack() as stack:
        stack.enter_context(below_version_bump())
        for keys in _autocast_keysets():
            stack.enter_context(_ExcludeDispatchKeyGuard(keys))
        yield


# What schemas may write as defaults for values that the dispatcher has numbers for.
_NUMBERED = {
    "ScalarType": [
        *("uint8", "int8", "short", "int", "long", "bool"),
        *("half", "float", "double", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    ],
    "Layout": ["strided"],
    "MemoryFormat": ["contiguous_format"],
}


def default_of(argument: Any) -> Any:
    """The default value of a schema's argument as Python has it; None where it has none."""
    value = argument.default_value
    kind = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
    if value is None:
        return None
    if kind == "Device":
        return torch.device(value)
    if kind in _NUMBERED:
        names = {parse_schema(f"f({kind} x={n}) -> ()").arguments[0].default_value: n for n in _NUMBERED[kind]}
        return getattr(torch, names[value])
    return value


def base_of(view: torch.Tensor) -> torch.Tensor | None:
    """The tensor that a differentiable view is a view of; None if it is no view."""
    return _attribute(view, "_base", "torch.Tensor._base") if _is_view(view) else None


def view_may_be_modified(view: torch.Tensor) -> bool:
    """False for views that autograd cannot rebase: one of several from one call, or made under no_grad."""
    return bool(_get_creation_meta(view) == _CreationMeta.DEFAULT)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether its storage has an address. Asking in another way copies memory that is shared until somebody writes."""
    return bool(address(tensor))


def privateuse1_name() -> str:
    """The name of the device that a package has added to PyTorch; ``privateuseone`` where it gave none."""
    return "privateuseone" if isinstance(_get_privateuse1_backend_name, Missing) else _get_privateuse1_backend_name()


def register_fake(library: torch.library.Library, operator: str, kernel: Callable[..., Any]) -> None:
    """``torch.library.register_fake`` without its look-up of the calling source line, which delays the import."""
    if _is_missing("Library._registration_handles") or isinstance(_singleton, Missing):
        torch.library.register_fake(operator, kernel, lib=library)
        return
    entry = _singleton.find(operator)
    library._registration_handles.append(entry.fake_impl.register(kernel, "opwheel.dispatch.fake", library))


@contextmanager
def checkpoint_policies_see(called: Any, training: Any) -> Iterator[None]:
    """A context in which policies of selective checkpointing that would keep ``called`` keep ``training``, too.

    Their modes ask the policy by the operator that they see, and keep what that one returns.
    """
    checkpoint: Any = sys.modules.get("torch.utils.checkpoint")
    changed = []
    for mode in _checkpointing_modes() if checkpoint else []:
        policy = getattr(mode, "policy_fn", None)  # newer releases ask once, in the forward pass
        if policy is not None:
            changed.append((mode, policy))
            mode.policy_fn = _keeping_either(policy, called, training, checkpoint.CheckpointPolicy)
    try:
        yield
    finally:
        for mode, policy in changed:
            mode.policy_fn = policy


def _checkpointing_modes() -> list[Any]:
    """The modes of selective checkpointing that are entered; none where they are not found."""
    if isinstance(_len_torch_dispatch_stack, Missing) or not _len_torch_dispatch_stack():
        return []
    kinds = (
        _found("torch.utils.checkpoint._CachingTorchDispatchMode"),
        _found("torch.utils.checkpoint._CachedTorchDispatchMode"),
    )
    if any(isinstance(one, Missing) for one in (*kinds, _get_current_dispatch_mode_stack)):
        return []
    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, kinds)]


def _keeping_either(policy: Callable[..., Any], called: Any, training: Any, policies: Any) -> Callable[..., Any]:
    def ask(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if op is training:
            answer = policy(context, called, *args, **kwargs)
            if answer in (True, policies.MUST_SAVE, policies.PREFER_SAVE):
                return answer
        return policy(context, op, *args, **kwargs)

    return ask


def compiler_is_functionalizing() -> bool:
    """Whether torch.compile or torch.export is removing mutation from what it traces."""
    return _get_dispatch_mode(_TorchDispatchModeKey.FUNCTIONAL) is not None


def is_functional_view(tensor: torch.Tensor) -> bool:
    """Under functionalization: whether the tensor is a part of another one, whose memory is not its own to resize."""
    return not _is_functional_tensor_base(tensor)


def replace_functional(target: torch.Tensor, value: torch.Tensor) -> None:
    """Under functionalization: from now on ``target`` stands for ``value``, and so do views of it.

    A value that was computed from constants alone is no wrapper.
    """
    is_wrapper = _is_functional_tensor(value)
    _functionalize_replace(target, _from_functional_tensor(value) if is_wrapper else value)
    _functionalize_commit_update(target)
    _functionalize_sync(target)


def functional_wrapper(value: torch.Tensor) -> torch.Tensor:
    """Under functionalization: a tensor that stands for ``value``."""
    wrapper: torch.Tensor = _to_functional_tensor(value)
    return wrapper


def behind_functional_wrapper(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor of :func:`functional_wrapper` stands for; any other tensor itself."""
    if not _is_functional_tensor(tensor):
        return tensor
    _functionalize_sync(tensor)
    value: torch.Tensor = _from_functional_tensor(tensor)
    return value


def has_triton() -> bool:
    """Whether inductor can compile for accelerators here."""
    return bool(find("torch.utils._triton.has_triton")())


def functional_tensor() -> type[torch.Tensor]:
    """The tensors that torch.compile and torch.export trace a program with while mutation is removed."""
    kind: type[torch.Tensor] = find("torch._subclasses.functional_tensor.FunctionalTensor")
    return kind


def made_in_graph(tensor: Any) -> Any:
    """The functional tensor that a functional tensor is a part of; None for inputs of the graph.

    An input that an operator has written to is one. Where no graph is traced, all are.
    """
    get_base = find("torch._higher_order_ops.auto_functionalize.get_base")
    get_proxy_slot = find("torch.fx.experimental.proxy_tensor.get_proxy_slot")
    mode: Any = _get_dispatch_mode(_TorchDispatchModeKey.PROXY)
    if mode is None:
        return None
    base = get_base(tensor)
    base = tensor if base is None else base
    _functionalize_sync(base.elem)
    slot: Any = get_proxy_slot(_from_functional_tensor(base.elem), mode.tracer, None)
    return base if slot is not None and _written_node(slot.proxy.node).op == "call_function" else None


def _written_node(node: Any) -> Any:
    """The node of what an operator wrote to, where a node is what that is afterwards."""
    higher = torch.ops.higher_order
    if node.target is operator.getitem and node.args[0].target is higher.auto_functionalized_v2:
        call, position = node.args
        bases = call.kwargs["_all_bases"]
        return _written_node(bases[position - max(len(schema(call.args[0]).returns), 1)])
    return node


def before_functionalization(op: Any, change: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
    """Let torch.compile and torch.export remove the mutation of a call with other arguments than the program's.

    Args:
        op: the overload.
        change: is called as the operator is, and returns positional and keyword arguments.
    """
    for path in _COPYING:
        if isinstance(missing := _found(path), Missing):
            missing()  # without a copy inductor may give a kernel memory that others still read
    mode_of_tracing = find("torch._subclasses.functional_tensor.FunctionalTensorMode")

    def call(mode: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            args, kwargs = change(*args, **kwargs)
            return op._op_dk(_DispatchKey.Python, *args, **kwargs)

    op.python_key_table[mode_of_tracing] = call
    op._dispatch_cache.clear()


def register_lowering(op: Any, needs_copy: Callable[[Any], bool]) -> None:
    """Let inductor make a copy of an operator's first argument, or hand on the argument itself where none is needed.

    Args:
        op: the overload, of a tensor and a number.
        needs_copy: is called with the node of a call in the final graph.
    """
    clone = find("torch._inductor.lowering.clone")
    current = find("torch._inductor.virtualized.V")
    register = find("torch._inductor.lowering.register_lowering")
    if any(isinstance(one, Missing) for one in (clone, current, register)):
        return  # the operator stays a call, which copies

    def lower(x: Any, _: Any) -> Any:
        return clone(x) if needs_copy(current.current_node) else x

    register(op, type_promotion_kind=None)(lower)


def storage_of_node(node: Any) -> int | None:
    """A number for the memory that a node's tensor is in; None if it has no tensor."""
    value = node.meta.get("val")
    return storage_address(value.untyped_storage()) if isinstance(value, torch.Tensor) else None


def storages_written_by(node: Any) -> set[int | None]:
    """Those of the arguments that an operator in a graph writes to."""
    if not isinstance(node.target, type(torch.ops.aten.neg.default)):
        return set()
    arguments = schema(node.target).arguments
    values = {argument.name: value for argument, value in zip(arguments, node.args, strict=False)}
    written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    nodes = pytree.tree_leaves([(values | node.kwargs).get(name) for name in written])
    return {storage_of_node(one) for one in nodes if isinstance(one, torch.fx.Node)}


def decompositions() -> dict[Any, Callable[..., Any]] | None:
    """Inductor's, by overload; None where they are not found. :func:`decompositions_changed` follows a change."""
    found: Any = find("torch._inductor.decomposition.decompositions")
    return None if isinstance(found, Missing) or _is_missing(_FAST_RANDOM) else found


def decompositions_changed() -> None:
    """Let inductor make again what it has made of :func:`decompositions`."""
    find(_FAST_RANDOM).cache_clear()


def trace_instead(function: Callable[..., Any], op: Callable[..., Any]) -> None:
    """Let Dynamo trace calls of ``op`` in the place of those of a function in C++."""
    substitute = find("torch._dynamo.decorators.substitute_in_graph")

    def call(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    if not isinstance(substitute, Missing):
        substitute(function, skip_signature_check=True)(call)


def fake_mode_with_unknown_sizes() -> Any:
    """A context in which sizes that depend on values are symbols."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return find("torch._subclasses.fake_tensor.FakeTensorMode")(shape_env=ShapeEnv())


def batched(rule: Callable[..., Any], op: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """A call at the FuncTorchBatched key with a rule as ``torch.library.register_vmap`` takes it.

    Args:
        rule: ``rule(info, in_dims, *values)`` gives results and their batch dimensions.
        op: is called instead where nothing is batched at the innermost level of vmap.
        values: of the arguments.
    """
    interpreter = find("torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter")()
    return find("torch._functorch.autograd_function.custom_function_call_vmap_helper")(interpreter, rule, op, *values)


def has_kernel(operator: str, dispatch_key: str) -> bool:
    """Whether a kernel is registered for exactly this key: alias keys and fallbacks do not count."""
    return bool(_dispatch_has_kernel_for_dispatch_key(operator, dispatch_key))


_SEEING = (
    "torch._C._dispatch_dump",
    "torch._C._dispatch_dump_table",
    "torch._C._dispatch_find_dangling_impls",
    "torch._C._dispatch_has_backend_fallback",
    "torch._C._dispatch_get_all_op_names",
    "torch.library._defs",
)


def why_registrations_are_not_seen() -> str:
    """Which name of those that show what is registered this PyTorch lacks; empty if it has all."""
    return next((in_words(NAMES[path]) for path in _SEEING if _is_missing(path)), "")


def kernel_registrations(operator: str) -> str:
    """PyTorch's own dump of what is registered for an operator, a line each."""
    return str(_dispatch_dump(operator))


def kernels_without_schema() -> dict[str, str]:
    """Operators that have a kernel but no schema, with PyTorch's dump of what is registered."""
    dumps = _dispatch_find_dangling_impls()
    return {dump.partition("\n")[0].removeprefix("name: "): dump for dump in dumps}


def schema_of(operator: str) -> Any | None:
    """The schema of an operator (``"ns::name"`` or ``"ns::name.overload"``), None when nobody defined it."""
    name, _, overload = operator.partition(".")
    find_schema = _dispatch_find_schema_or_throw
    if isinstance(find_schema, Missing):
        find_schema()
    try:
        return find_schema(name, overload).schema()
    except RuntimeError:
        return None


def is_defined(operator: str) -> bool:
    """Whether :func:`schema_of` finds one: in a microsecond, where an exception takes fifty."""
    if isinstance(_get_operation_overload, Missing):
        return schema_of(operator) is not None
    name, _, overload = operator.partition(".")
    return _get_operation_overload(name, overload) is not None


def is_namespace_defined(namespace: str) -> bool:
    """Whether there is a TORCH_LIBRARY block, or a ``torch.library.Library`` of kind DEF, for the namespace."""
    library = _dispatch_library
    if isinstance(library, Missing):
        library()
    try:
        library("DEF", namespace, "").reset()
    except RuntimeError:
        return True
    return False


def operators_of(namespace: str) -> list[str]:
    """Those of :func:`every_operator` that are in a namespace."""
    return [name for name in every_operator() if name.startswith(f"{namespace}::")]


def operators_defined_in_python(namespace: str) -> list[str]:
    """Those of :func:`operators_of` that torch.library has defined, and some that are gone. Takes microseconds."""
    return [name for name in _defs if name.startswith(f"{namespace}::")]


def dispatch_keys() -> dict[str, Any]:
    """Every dispatch key under which a call can look for a kernel, by name; aliases are not among them."""
    known = _DispatchKey.__members__  # the enumeration lacks some keys, the parser others
    names = str(_dispatch_keyset_full()).removeprefix("DispatchKeySet(").removesuffix(")").split(", ")
    if isinstance(_dispatch_key_parse, Missing):
        return {name: known[name] for name in names if name in known}
    return {name: known[name] if name in known else _dispatch_key_parse(name) for name in names}


@cache
def _autocast_keysets() -> list[Any]:
    """A set for each of autocast's keys."""
    return [_DispatchKeySet(key) for name, key in dispatch_keys().items() if name.startswith("Autocast")]


def uses_fallback(operator: str, dispatch_key: str) -> bool:
    """Whether a call that arrives at the key runs the fallback for all operators, not a kernel of this one."""
    lines = _dispatch_dump_table(operator).splitlines()
    return any(line.startswith(f"{dispatch_key}: ") and line.endswith("[backend fallback]") for line in lines)


def dispatch_key_of(device_type: str) -> str | None:
    """The key at which kernels for the plain tensors of a device are; None if PyTorch knows no such device."""
    try:
        torch.device(device_type)
    except RuntimeError:
        # The spare device gets its name at run time, perhaps only when it is used.
        is_spare = privateuse1_name() == "privateuseone" and device_type.isidentifier()
        return "PrivateUse1" if is_spare else None
    if isinstance(_dispatch_key_for_device, Missing):
        return next((key for key in dispatch_keys() if key.lower() == device_type), None)
    try:
        return str(_dispatch_key_for_device(device_type))
    except RuntimeError:
        return None


def why_no_device(device_type: str) -> str:
    """Why no tensor can be on such a device in this process; empty if PyTorch knows the device."""
    try:
        torch.device(device_type)
    except RuntimeError as error:
        known = str(error).partition(" device type at")[0]  # "Expected one of cpu, cuda, ..."
        name = privateuse1_name()
        renamed = "" if name == "privateuseone" else f", or {name!r}, which a package has registered"
        return f"PyTorch knows no device {device_type!r} in this process: {known}{renamed}"
    return ""


def define_operator(schema: str) -> Any:
    """Define an operator, whose schema names a namespace, for as long as the returned object lives."""
    namespace, _, text = schema.partition("::")
    library = _dispatch_library("FRAGMENT", namespace, "", __file__)
    library.define(text)
    return library


def register_kernel(operator: str, dispatch_key: str, kernel: Callable[..., Any]) -> Any:
    """Register a kernel on top of whatever is there, for as long as the returned object lives."""
    namespace, _, name = operator.partition("::")
    library = _dispatch_library("IMPL", namespace, "", __file__)
    library.impl(name, dispatch_key, kernel)
    return library


def destroy_library(library: torch.library.Library) -> None:
    """Remove everything that was registered through ``library``."""
    _destroy(library)


def close_shared_library(handle: ctypes.CDLL) -> None:
    """``dlclose``: the counterpart of ``ctypes.CDLL``, which the standard library keeps to itself."""
    _ctypes.dlclose(handle._handle)
