"""DTensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..lookup import Missing, find

_op_dispatcher = find("torch.distributed.tensor.DTensor._op_dispatcher")
_RuntimeSchemaInfo = find("torch.distributed.tensor._op_schema.RuntimeSchemaInfo")
_local_results = find("torch.distributed.tensor.DTensor._op_dispatcher._dispatch_get_local_results_slow_path")
_propagate_tensor_meta = find(
    "torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator._propagate_tensor_meta"
)
_expand_to_full_mesh_op_strategy = find("torch.distributed.tensor._ops.utils.expand_to_full_mesh_op_strategy")

Placements = list[Any]


def register_placements(
    op: Any,
    choose: Callable[..., tuple[list[Placements], Callable[[Sequence[Any], Sequence[Any]], bool]]],
    first_number: int,
    keywords: Sequence[str],
) -> None:
    """Register what DTensor may do with the calls of an overload.

    ``torch.distributed.tensor.experimental.register_sharding`` lacks two things: what DTensor has found for a
    call it remembers by positional tensors and integers alone, although placements may depend on any argument; and on a
    mesh of several dimensions nobody is asked which combinations are right.

    Args:
        op: the overload.
        choose: ``choose(mesh_shape, args, kwargs)`` is called with the arguments of a call, in the place of each tensor
            its ``DTensorSpec``. It gives, for one dimension of a mesh, the lists of placements of the results and then
            of the tensors; and whether a combination of these is right, given the specs of tensors and of results.
        first_number: the position of the first positional argument that is no tensor.
        keywords: names of the keyword-only arguments.
    """

    def strategy(op_schema: Any) -> Any:
        mesh = op_schema.get_mesh_from_args()
        args = tuple(_spec(one) for one in op_schema.args_schema)
        kwargs = {name: _spec(one) for name, one in op_schema.kwargs_schema.items()}
        lists, is_right = choose(tuple(mesh.shape), args, kwargs)
        expanded = _expand_to_full_mesh_op_strategy(mesh, op_schema, lists, input_index=len(op._schema.returns))
        expanded.strategies[:] = [
            one for one in expanded.strategies if is_right(one.input_specs, _as_tuple(one.output_specs))
        ]
        if not expanded.strategies:
            raise RuntimeError(
                f"{op}: no way to share it out leaves what it writes to where it is: parts on {tuple(mesh.shape)} "
                "processes would be empty or of different sizes; make it whole (Replicate), or its size a multiple"
            )
        return expanded

    if any(isinstance(one, Missing) for one in (_op_dispatcher, _RuntimeSchemaInfo, _expand_to_full_mesh_op_strategy)):
        return  # which a warning has said; DTensor refuses the operators by name
    info = _RuntimeSchemaInfo(first_number, list(keywords) or None, needs_pytree=True)
    _op_dispatcher.sharding_propagator.register_op_strategy(op, strategy, info)


def register_call(
    library: Any, op: Any, call: Callable[[tuple[Any, ...], dict[str, Any]], Any], tensor_class: type
) -> None:
    """Let a function compute the calls of an overload on DTensors, but those for which it gives ``NotImplemented``.

    Args:
        library: the ``torch.library.Library`` with which the registration ends.
        op: the overload.
        call: is called with the arguments.
        tensor_class: ``DTensor``.
    """
    if any(isinstance(one, Missing) for one in (_op_dispatcher, _local_results, _propagate_tensor_meta)):
        return  # which a warning has said

    def rule(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        given = kwargs or {}
        results = call(args, given)
        if results is not NotImplemented:
            return results
        # Calling it again would come here again; these are the steps that PyTorch's function in C++ has in Python.
        info = _op_dispatcher.unwrap_to_op_info(func, args, given)
        _op_dispatcher.sharding_propagator.propagate(info)
        local = _local_results(func, args, info)
        return _op_dispatcher.wrap(local, info.output_sharding.output_spec)

    torch.library.register_torch_dispatch(op, tensor_class, rule, lib=library)


def results_of(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What a call on DTensors gives as a whole: for each result its ``shape``, ``stride`` and ``dtype``."""
    info = _op_dispatcher.unwrap_to_op_info(op, args, kwargs)
    found = _propagate_tensor_meta(info.schema)
    return found if isinstance(found, tuple) and not hasattr(found, "stride") else (found,)


def _spec(given: Any) -> Any:
    """The spec of a tensor, those of a list of tensors, or the value of what is none."""
    if hasattr(given, "strategies"):
        return given.strategies[0].output_spec
    if hasattr(given, "children"):
        return tuple(_spec(one) for one in given.children)
    return given


def _as_tuple(specs: Any) -> tuple[Any, ...]:
    return specs if isinstance(specs, tuple) else () if specs is None else (specs,)
