"""The rule of element-wise operators: all that PyTorch's own do, with out and in-place variants.

What computes in Python is imported when it is first called: most programs have kernels, and import the library quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..rule import Rule, refuse

if TYPE_CHECKING:
    from ...overload import Overload


class Elementwise(Rule):
    """Claims that every element of a result is computed from the elements at its place, as PyTorch's own operators do.

    Arguments broadcast and promote as ``torch.result_type`` says; floating-point tensors; float16 and bfloat16 are
    computed in float32 and rounded once; results have the strides that TensorIterator gives. The overloads
    ``name.out`` and ``name_`` are understood. ``vmap`` is one call, DTensor shards every dimension.

    Args:
        linear: sets of arguments in which every result is jointly linear while the others are fixed. A sum that is
            still spread over processes (DTensor's Partial) may go in there and come out as one.
    """

    fuses = True
    has_batches = True
    has_variants = True

    def __init__(self, linear: tuple[tuple[str, ...], ...] = ()) -> None:
        self.linear = linear

    def __repr__(self) -> str:
        return f"Elementwise(linear={self.linear})" if self.linear else "Elementwise()"

    def check(self, overload: Overload) -> None:
        """Refuse arguments but tensors and floats, and mutation but that of the known variants."""
        way_out = "declare the operator Opaque() or Rows(...)"
        schema = overload.schema
        for i, argument in enumerate(schema.arguments):
            what = f"argument '{argument.name}' of an Elementwise() operator"
            if str(argument.real_type) not in ("Tensor", "float"):
                refuse(overload, f"{what} is a {argument.real_type}, not a Tensor or float", way_out)
            if argument.has_default_value():
                refuse(overload, f"{what} has a default value", f"give it in a function of your own, or {way_out}")
            if argument.alias_info and not argument.alias_info.is_write:
                refuse(overload, f"{what} is annotated as the memory of a result", "return a new tensor")
            if argument.kwarg_only and i not in overload.written:
                refuse(overload, f"{what} is keyword-only", "only 'out' is; make it positional")
        if not overload.tensor_positions:
            refuse(overload, "an Elementwise() operator without a tensor", way_out)
        if not schema.returns or any(str(result.type) != "Tensor" for result in schema.returns):
            refuse(overload, "the results of an Elementwise() operator are Tensors", way_out)
        tensors = {overload.names[i] for i in overload.tensor_positions} - {overload.names[i] for i in overload.written}
        for names in self.linear if not overload.mutates else ():
            if not isinstance(names, tuple) or not names or not set(names) <= tensors:
                refuse(
                    overload,
                    f"Elementwise(linear=...) has {names!r}",
                    f"give tuples of the names of tensors, {', '.join(map(repr, sorted(tensors)))}",
                )
        if overload.operator.memory_format is not torch.contiguous_format:
            refuse(
                overload,
                "an Elementwise() operator has the strides of PyTorch's element-wise operators, and no memory_format",
                "leave memory_format out",
            )
        base, name = overload.operator.name, overload.name
        variants = {f"{base}.out": overload.is_out, f"{base}_": overload.is_in_place and overload.written == (0,)}
        if not variants.get(name, name == base and not overload.mutates) or len(overload.written) > 1:
            refuse(
                overload,
                f"an Elementwise() operator {base!r} has the variants '{base}.out(..., *, Tensor(a!) out) -> "
                f"Tensor(a!)' and '{base}_(Tensor(a!) ..., ...) -> Tensor(a!)', and writes nowhere else",
                way_out,
            )

    def decompose(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """The reference in the compute dtype, on checked arguments."""
        from . import reference

        return reference.decompose(overload, values)

    def reference(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """The decomposition, whose operators give the strides; for a variant, put where it belongs."""
        from . import reference

        return (reference.written_result if overload.mutates else reference.decompose)(overload, values)

    def fake(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """Broadcast, promoted, in TensorIterator's strides."""
        from . import empty_results

        args, kwargs = overload.unbind(values)
        if overload.mutates:
            return empty_results.written_output(overload, args, kwargs)
        return empty_results.functional_results(overload, args)

    def vmap(self, overload: Overload, size: int, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """One call for the whole batch."""
        if overload.is_out:
            raise RuntimeError(f"vmap: {overload.name} cannot be batched; use the functional variant")
        from . import batching

        return (batching.in_place if overload.is_in_place else batching.functional)(overload, in_dims, values)

    def batches(self, overload: Overload, values: tuple[Any, ...]) -> list[dict[str, int]]:
        """Every dimension, counted from the end; arguments that broadcast along it do not have it."""
        tensors = {overload.names[i]: values[i] for i in overload.tensor_positions}
        free = []
        for dim in range(1, max(tensor.dim() for tensor in tensors.values()) + 1):
            having = [name for name, one in tensors.items() if one.dim() >= dim and one.shape[-dim] > 1]
            if having:
                free.append(dict.fromkeys((*having, *overload.result_names), -dim))
        return free

    def placements(self, overload: Overload) -> tuple[str, ...]:
        """Every dimension of the result, and sums and means over processes where it is linear."""
        results = len(overload.schema.returns)

        def rule(placement: str, names: Iterable[str]) -> str:
            given = ", ".join(f"{name}={placement}" for name in names)
            return f"{given} -> {', '.join([placement] * results)}"

        partial = [rule(placement, names) for names in self.linear for placement in ("P(sum)", "P(avg)")]
        return (rule("S(...)", overload.tensor_arguments), *partial)

    def python_kernel(self, overload: Overload, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with contiguous tensors of one shape, in float64 for float64 results, else in float32."""
        if overload.mutates:
            refuse(overload, "a Python kernel returns new tensors, it cannot overwrite arguments", "leave it out")
        from .python_kernel import python_kernel

        return python_kernel(overload, function)

    def functionalize(self, overload: Overload) -> Callable[..., Any]:
        """Out and in-place variants through the functional overload."""

        def kernel(*args: Any, **kwargs: Any) -> Any:
            from .functionalization import compute_functionally

            return compute_functionally(overload, overload.functional, args, kwargs)

        return kernel
