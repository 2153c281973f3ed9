"""Functionalization, Dynamo and inductor."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree  # its own documentation has it for users

from ..lookup import Missing, find, found, is_missing, needed
from .schemas import schema
from .tensors import storage_address

_functionalize_commit_update = find("torch._functionalize_commit_update")
_is_functional_tensor_base = find("torch._is_functional_tensor_base")
_TorchDispatchModeKey = find("torch._C._TorchDispatchModeKey")
_from_functional_tensor = find("torch._from_functional_tensor")
_functionalize_replace = find("torch._functionalize_replace")
_is_functional_tensor = find("torch._is_functional_tensor")
_get_dispatch_mode = find("torch._C._get_dispatch_mode")
_to_functional_tensor = find("torch._to_functional_tensor")
_functionalize_sync = find("torch._functionalize_sync")
_DispatchKey = find("torch._C.DispatchKey")

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

_tag_lock = threading.Lock()


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
    return bool(found("torch.utils._triton.has_triton")())


def functional_tensor() -> type[torch.Tensor]:
    """The tensors that torch.compile and torch.export trace a program with while mutation is removed."""
    kind: type[torch.Tensor] = found("torch._subclasses.functional_tensor.FunctionalTensor")
    return kind


def made_in_graph(tensor: Any) -> Any:
    """The functional tensor that a functional tensor is a part of; None for inputs of the graph.

    An input that an operator has written to is one. Where no graph is traced, all are.
    """
    get_base = found("torch._higher_order_ops.auto_functionalize.get_base")
    get_proxy_slot = found("torch.fx.experimental.proxy_tensor.get_proxy_slot")
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
        needed(found(path))  # without a copy inductor may give a kernel memory that others still read
    mode_of_tracing = found("torch._subclasses.functional_tensor.FunctionalTensorMode")

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
    clone = found("torch._inductor.lowering.clone")
    current = found("torch._inductor.virtualized.V")
    register = found("torch._inductor.lowering.register_lowering")
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
    table: Any = found("torch._inductor.decomposition.decompositions")
    return None if isinstance(table, Missing) or is_missing(_FAST_RANDOM) else table


def decompositions_changed() -> None:
    """Let inductor make again what it has made of :func:`decompositions`."""
    found(_FAST_RANDOM).cache_clear()


def change_cache_key_tag(change: Callable[[str], str]) -> None:
    """Replace ``torch.compiler.config.cache_key_tag``, which is in the keys of compiled programs on disk.

    In recent releases what is assigned counts in the thread that assigns it, and calls of a library that one thread
    opens are compiled by others: so the default is replaced. A thread that has assigned its own tag has that alone.

    Args:
        change: gets the tag; one thread's at a time.
    """
    from torch.compiler import config

    entries: Any = found("torch.compiler.config._config")
    with _tag_lock:
        before = str(config.cache_key_tag)
        after = change(before)
        if not isinstance(entries, Missing):
            entry = entries["cache_key_tag"]
            for field in ("default", "env_value_default"):  # TORCH_COMPILE_CACHE_KEY_TAG is the second
                if isinstance(value := getattr(entry, field), str):
                    setattr(entry, field, change(value))
        if config.cache_key_tag != after:
            config.cache_key_tag = after


def trace_instead(function: Callable[..., Any], op: Callable[..., Any]) -> None:
    """Let Dynamo trace calls of ``op`` in the place of those of a function in C++."""
    substitute = found("torch._dynamo.decorators.substitute_in_graph")

    def call(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    if not isinstance(substitute, Missing):
        substitute(function, skip_signature_check=True)(call)


def fake_mode_with_unknown_sizes() -> Any:
    """A context in which sizes that depend on values are symbols."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return found("torch._subclasses.fake_tensor.FakeTensorMode")(shape_env=ShapeEnv())
