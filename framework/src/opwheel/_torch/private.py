"""Every name of PyTorch that is not public and that opwheel uses, in one place.

tests/unit/test_torch_private.py says for each of them what breaks when it moves.
"""

from __future__ import annotations

import _ctypes
import ctypes
import gc
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from weakref import WeakSet

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

# Names under torch._C are stable in practice but not promised: they are reached through this module only.
below_autograd = torch._C._AutoDispatchBelowAutograd
below_version_bump = torch._C._AutoDispatchBelowADInplaceOrView
after_autograd_keys = torch._C._after_autograd_keyset
after_version_bump_keys = torch._C._after_ADInplaceOrView_keyset
functorch_is_active = torch._C._are_functorch_transforms_active
any_requires_grad = torch._C._any_requires_grad
has_storage = torch._C._has_storage  # tensors of torch.func have none
address = torch._C._data_address  # type: ignore[attr-defined]  # 0 for fake tensors, for which data_ptr() raises
is_alias = torch._C._is_alias_of  # type: ignore[attr-defined]  # whether two tensors have one storage
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # by a transform of torch.func, or functionalization


def layers(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor, and beneath it those that transforms of ``torch.func``, and functionalization, have wrapped."""
    yield tensor
    while is_wrapped(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
        yield tensor


def any_autocast_is_enabled() -> bool:
    """Whether ``torch.autocast`` is on for some device type."""
    return bool(torch._C._is_any_autocast_enabled())


def forward_ad_is_active() -> bool:
    """Whether some ``forward_ad.dual_level()`` is entered, so that tensors may carry tangents."""
    return bool(forward_ad._current_level >= 0)


def keyset(key: str) -> Any:
    """A set of one dispatch key."""
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))


def operation(op: Any) -> Callable[..., Any]:
    """An overload's call without the frame of Python around it."""
    function: Callable[..., Any] = op._op
    return function


def set_operation(op: Any, function: Callable[..., Any]) -> None:
    """Give an overload another function to call, which changes its hash."""
    op._op = function


def tensor_address(tensor: torch.Tensor) -> int:
    """Where the object of C++ is that a tensor is in Python."""
    address: int = tensor._cdata
    return address


def redispatch(op: Any) -> Callable[..., Any]:
    """``op.redispatch`` without the frame of Python around it: called with a set of dispatch keys and the arguments."""
    function: Callable[..., Any] = op._handle.redispatch_boxed
    return function


def without_dispatch_key(key: str) -> Any:
    """A context in which the dispatcher skips ``key``."""
    return torch._C._ExcludeDispatchKeyGuard(keyset(key))


@contextmanager
def below_autograd_and_autocast() -> Iterator[None]:
    """A context in which the dispatcher skips the keys at which PyTorch's own kernels are not asked again."""
    with ExitStack() as stack:
        stack.enter_context(below_version_bump())
        for keys in _autocast_keysets():
            stack.enter_context(torch._C._ExcludeDispatchKeyGuard(keys))
        yield


def parse_schema(text: str) -> Any:
    """The schema as PyTorch sees it, with ``arguments`` and ``returns``."""
    return torch._C.parse_schema(text)


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
    return view._base if view._is_view() else None


def view_may_be_modified(view: torch.Tensor) -> bool:
    """False for views that autograd cannot rebase: one of several from one call, or made under no_grad."""
    return bool(torch._C._autograd._get_creation_meta(view) == torch._C._autograd.CreationMeta.DEFAULT)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether its storage has an address. Asking in another way copies memory that is shared until somebody writes."""
    return bool(address(tensor))


def privateuse1_name() -> str:
    """The name of the device that a package has added to PyTorch; ``privateuseone`` where it gave none."""
    return torch._C._get_privateuse1_backend_name()


def register_fake(library: torch.library.Library, operator: str, kernel: Callable[..., Any]) -> None:
    """``torch.library.register_fake`` without its look-up of the calling source line, which delays the import."""
    entry = torch._library.simple_registry.singleton.find(operator)
    library._registration_handles.append(entry.fake_impl.register(kernel, "opwheel.dispatch.fake", library))


@contextmanager
def checkpoint_policies_see(called: Any, training: Any) -> Iterator[None]:
    """A context in which policies of selective checkpointing that would keep ``called`` keep ``training``, too.

    Their modes ask the policy by the operator that they see, and keep what that one returns.
    """
    checkpoint: Any = sys.modules.get("torch.utils.checkpoint")
    modes = _get_current_dispatch_mode_stack() if checkpoint and torch._C._len_torch_dispatch_stack() else []
    changed = []
    for mode in modes:
        if isinstance(mode, (checkpoint._CachingTorchDispatchMode, checkpoint._CachedTorchDispatchMode)):
            policy = getattr(mode, "policy_fn", None)  # newer releases ask once, in the forward pass
            if policy is not None:
                changed.append((mode, policy))
                mode.policy_fn = _keeping_either(policy, called, training, checkpoint.CheckpointPolicy)
    try:
        yield
    finally:
        for mode, policy in changed:
            mode.policy_fn = policy


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
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL) is not None


def is_functional_view(tensor: torch.Tensor) -> bool:
    """Under functionalization: whether the tensor is a part of another one, whose memory is not its own to resize."""
    return not torch._is_functional_tensor_base(tensor)


def replace_functional(target: torch.Tensor, value: torch.Tensor) -> None:
    """Under functionalization: from now on ``target`` stands for ``value``, and so do views of it.

    A value that was computed from constants alone is no wrapper.
    """
    is_wrapper = torch._is_functional_tensor(value)
    torch._functionalize_replace(target, torch._from_functional_tensor(value) if is_wrapper else value)
    torch._functionalize_commit_update(target)
    torch._functionalize_sync(target)


def functional_tensor() -> type[torch.Tensor]:
    """The tensors that torch.compile and torch.export trace a program with while mutation is removed."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    return FunctionalTensor


def made_in_graph(tensor: Any) -> Any:
    """The functional tensor that a functional tensor is a part of; None for inputs of the graph.

    An input that an operator has written to is one. Where no graph is traced, all are.
    """
    from torch._higher_order_ops.auto_functionalize import get_base
    from torch.fx.experimental.proxy_tensor import get_proxy_slot

    mode: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    if mode is None:
        return None
    base = get_base(tensor)
    base = tensor if base is None else base
    torch._functionalize_sync(base.elem)
    slot: Any = get_proxy_slot(torch._from_functional_tensor(base.elem), mode.tracer, None)
    return base if slot is not None and _written_node(slot.proxy.node).op == "call_function" else None


def _written_node(node: Any) -> Any:
    """The node of what an operator wrote to, where a node is what that is afterwards."""
    higher = torch.ops.higher_order
    if node.target is operator.getitem and node.args[0].target is higher.auto_functionalized_v2:
        call, position = node.args
        bases = call.kwargs["_all_bases"]
        return _written_node(bases[position - max(len(call.args[0]._schema.returns), 1)])
    return node


def before_functionalization(op: Any, change: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
    """Let torch.compile and torch.export remove the mutation of a call with other arguments than the program's.

    Args:
        op: the overload.
        change: is called as the operator is, and returns positional and keyword arguments.
    """
    from torch._subclasses.functional_tensor import FunctionalTensorMode

    def call(mode: FunctionalTensorMode, *args: Any, **kwargs: Any) -> Any:
        with mode:
            args, kwargs = change(*args, **kwargs)
            return op._op_dk(torch._C.DispatchKey.Python, *args, **kwargs)

    op.python_key_table[FunctionalTensorMode] = call
    op._dispatch_cache.clear()


def register_lowering(op: Any, needs_copy: Callable[[Any], bool]) -> None:
    """Let inductor make a copy of an operator's first argument, or hand on the argument itself where none is needed.

    Args:
        op: the overload, of a tensor and a number.
        needs_copy: is called with the node of a call in the final graph.
    """
    from torch._inductor.lowering import clone, register_lowering
    from torch._inductor.virtualized import V

    @register_lowering(op, type_promotion_kind=None)
    def lower(x: Any, _: Any) -> Any:
        return clone(x) if needs_copy(V.current_node) else x


def storage_of_node(node: Any) -> int | None:
    """A number for the memory that a node's tensor is in; None if it has no tensor."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def storages_written_by(node: Any) -> set[int | None]:
    """Those of the arguments that an operator in a graph writes to."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return set()
    values = {argument.name: value for argument, value in zip(node.target._schema.arguments, node.args, strict=False)}
    written = [a.name for a in node.target._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    nodes = torch.utils._pytree.tree_leaves([(values | node.kwargs).get(name) for name in written])
    return {storage_of_node(one) for one in nodes if isinstance(one, torch.fx.Node)}


def batched(rule: Callable[..., Any], op: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """A call at the FuncTorchBatched key with a rule as ``torch.library.register_vmap`` takes it.

    Args:
        rule: ``rule(info, in_dims, *values)`` gives results and their batch dimensions.
        op: is called instead where nothing is batched at the innermost level of vmap.
        values: of the arguments.
    """
    from torch._functorch.autograd_function import custom_function_call_vmap_helper
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

    interpreter: Any = retrieve_current_functorch_interpreter()
    return custom_function_call_vmap_helper(interpreter, rule, op, *values)


def has_kernel(operator: str, dispatch_key: str) -> bool:
    """Whether a kernel is registered for exactly this key: alias keys and fallbacks do not count."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, dispatch_key))


def kernel_registrations(operator: str) -> str:
    """PyTorch's own dump of what is registered for an operator, a line each."""
    return str(torch._C._dispatch_dump(operator))


def kernels_without_schema() -> dict[str, str]:
    """Operators that have a kernel but no schema, with PyTorch's dump of what is registered."""
    dumps = torch._C._dispatch_find_dangling_impls()
    return {dump.partition("\n")[0].removeprefix("name: "): dump for dump in dumps}


def schema_of(operator: str) -> Any | None:
    """The schema of an operator (``"ns::name"`` or ``"ns::name.overload"``), None when nobody defined it."""
    name, _, overload = operator.partition(".")
    try:
        return torch._C._dispatch_find_schema_or_throw(name, overload).schema()
    except RuntimeError:
        return None


def is_defined(operator: str) -> bool:
    """Whether :func:`schema_of` finds one: in a microsecond, where an exception takes fifty."""
    name, _, overload = operator.partition(".")
    return torch._C._get_operation_overload(name, overload) is not None


def is_namespace_defined(namespace: str) -> bool:
    """Whether there is a TORCH_LIBRARY block, or a ``torch.library.Library`` of kind DEF, for the namespace."""
    try:
        torch._C._dispatch_library("DEF", namespace, "").reset()
    except RuntimeError:
        return True
    return False


def every_operator() -> list[str]:
    """Names that have a schema or a kernel in this process, with the namespace."""
    return torch._C._dispatch_get_all_op_names()


def operators_of(namespace: str) -> list[str]:
    """Those of :func:`every_operator` that are in a namespace."""
    return [name for name in every_operator() if name.startswith(f"{namespace}::")]


def operators_defined_in_python(namespace: str) -> list[str]:
    """Those of :func:`operators_of` that torch.library has defined, and some that are gone. Takes microseconds."""
    return [name for name in torch.library._defs if name.startswith(f"{namespace}::")]


def dispatch_keys() -> dict[str, Any]:
    """Every dispatch key under which a call can look for a kernel, by name; aliases are not among them."""
    known = torch._C.DispatchKey.__members__  # the enumeration lacks some keys, the parser others
    names = str(torch._C._dispatch_keyset_full()).removeprefix("DispatchKeySet(").removesuffix(")").split(", ")
    return {name: known[name] if name in known else torch._C._dispatch_key_parse(name) for name in names}


@cache
def _autocast_keysets() -> list[Any]:
    """A set for each of autocast's keys."""
    return [torch._C.DispatchKeySet(key) for name, key in dispatch_keys().items() if name.startswith("Autocast")]


has_fallback: Callable[[Any], bool] = torch._C._dispatch_has_backend_fallback


def uses_fallback(operator: str, dispatch_key: str) -> bool:
    """Whether a call that arrives at the key runs the fallback for all operators, not a kernel of this one."""
    lines = torch._C._dispatch_dump_table(operator).splitlines()
    return any(line.startswith(f"{dispatch_key}: ") and line.endswith("[backend fallback]") for line in lines)


def dispatch_key_of(device_type: str) -> str | None:
    """The key at which kernels for the plain tensors of a device are; None if PyTorch knows no such device."""
    try:
        torch.device(device_type)
    except RuntimeError:
        # The spare device gets its name at run time, perhaps only when it is used.
        is_spare = torch._C._get_privateuse1_backend_name() == "privateuseone" and device_type.isidentifier()
        return "PrivateUse1" if is_spare else None
    try:
        return str(torch._C._dispatch_key_for_device(device_type))
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


def register_kernel(operator: str, dispatch_key: str, kernel: Callable[..., Any]) -> Any:
    """Register a kernel on top of whatever is there, for as long as the returned object lives."""
    namespace, _, name = operator.partition("::")
    library = torch._C._dispatch_library("IMPL", namespace, "", __file__)
    library.impl(name, dispatch_key, kernel)
    return library


# What torch.library.Library objects a search for those of others must not find.
_ours: WeakSet[torch.library.Library] = WeakSet()


def keep_as_ours(library: torch.library.Library) -> None:
    """Let :func:`libraries_of_others` leave out ``library``."""
    _ours.add(library)


def libraries_of_others() -> Iterator[torch.library.Library]:
    """Every ``torch.library.Library`` in this process that is not ours, the newest first. Takes a tenth of a second."""
    gc.collect()
    for thing in reversed(gc.get_objects()):
        if issubclass(type(thing), torch.library.Library) and thing not in _ours:
            yield thing


def registered_through(library: torch.library.Library) -> set[tuple[str, str]]:
    """What was registered: operators with their namespace, and dispatch keys; the key "" is a definition.

    A library of fallbacks keeps no list: ``("_::*", key)`` is the key it was made for, "" if for none in particular.
    """
    if library.ns == "_":
        return {("_::*", library.dispatch_key)}
    kernels = (name.removeprefix(f"{library.ns}/").rpartition("/") for name in library._op_impls)
    return {(name, "") for name in library._op_defs} | {
        (f"{library.ns}::{operator}", "CompositeImplicitAutograd" if key in ("", "Undefined") else key)
        for operator, _, key in kernels
    }


def destroy_library(library: torch.library.Library) -> None:
    """Remove everything that was registered through ``library``."""
    library._destroy()


def close_shared_library(handle: ctypes.CDLL) -> None:
    """``dlclose``: the counterpart of ``ctypes.CDLL``, which the standard library keeps to itself."""
    _ctypes.dlclose(handle._handle)
