"""The rule that claims nothing: everything follows from the reference.

What only its operators need is imported when they are called: every library has the class, as it is the default rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..overload import as_tuple
from .rule import Rule, refuse
from .strides import empty_result, in_order, shared_strides

if TYPE_CHECKING:
    from ..overload import Overload

_TYPES = ("Tensor", "int", "float", "bool", "str", "number", "ScalarType", "Device", "Layout", "MemoryFormat", "SymInt")
_KNOWN = {
    *_TYPES,
    *(f"Optional[{kind}]" for kind in (*_TYPES, "Generator")),
    "Generator",
    *(f"List[{kind}]" for kind in ("Tensor", "Optional[Tensor]", "int", "float", "bool", "str", "number", "SymInt")),
    *(f"Optional[List[{kind}]]" for kind in ("int", "float", "bool", "number", "SymInt")),
}


class Opaque(Rule):
    """Claims nothing. Right for every operator, and slow where PyTorch has to see inside.

    Results are new tensors with the reference's shapes and dtypes, contiguous unless ``Operator(memory_format=...)``
    says otherwise. Arguments may be of every type that a schema has, and written to where they are annotated
    (``Tensor(a!)``); such an operator ends with ``-> ()`` or new tensors. ``vmap`` runs the reference, DTensor computes
    on whole tensors.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def check(self, overload: Overload) -> None:
        """Refuse views, results that are no tensors, and variants by name."""
        if overload.name != overload.operator.name:
            refuse(
                overload,
                f"an operator that is {self!r} has no other variant than '{overload.operator.name}.out'",
                f"declare Operator({overload.name!r}), with a reference that does what it does",
            )
        if overload.name.endswith(".out"):
            _check_out(overload)
        for argument in overload.schema.arguments:
            if str(argument.real_type) not in _KNOWN:
                refuse(overload, f"argument '{argument.name}' is a {argument.real_type}", "pass tensors and numbers")
            if argument.alias_info and not argument.alias_info.is_write:
                refuse(
                    overload,
                    f"argument '{argument.name}' is annotated as the memory of a result, which would be a view",
                    "return a new tensor, or write the view as a plain function",
                )
        for i, result in enumerate(overload.schema.returns):
            if result.alias_info:
                refuse(
                    overload,
                    f"result {i} is an argument that was written to, which torch.compile cannot follow",
                    "end the schema with '-> ()', or with the new tensors alone",
                )
            if str(result.type) != "Tensor":
                refuse(overload, f"result {i} is a {result.type}, not a Tensor", "return a fixed number of tensors")
        if not overload.tensor_positions and overload.device_argument is None:
            refuse(
                overload,
                "nothing says on which device it computes: it has no tensor",
                "add an argument such as 'Device device'",
            )

    def decompose(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """The reference."""
        return overload.call(overload.operator.reference, values)

    def reference(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """The reference, with new results."""
        return as_new(overload, values, overload.call(overload.operator.reference, values))

    def fake(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """The reference on fake tensors, or the operator's own ``fake``."""
        with torch.no_grad():
            results = overload.call(overload.operator.fake or overload.operator.reference, values)
        if not overload.schema.returns:
            return None
        shared = shared_strides(overload, values)
        empty = tuple(empty_result(result, shared) for result in as_tuple(results))
        return empty if len(overload.schema.returns) > 1 else empty[0]

    def vmap(self, overload: Overload, size: int, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        """The reference; an operator that writes is called for each example."""
        return for_each_example(overload, size, in_dims, values) if overload.mutates else None

    def python_kernel(self, overload: Overload, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with the arguments as they are given, defaults included; its results get their strides."""

        def kernel(*args: Any, **kwargs: Any) -> Any:
            values = overload.bind(args, kwargs)
            results = overload.call(function, values)
            if overload.schema.returns:
                return as_new(overload, values, results)
            from ..results import check_written

            check_written(overload, values, results)
            return None

        return kernel


def _check_out(overload: Overload) -> None:
    """Refuse an out variant that does not write one result into its last argument."""
    form = f"write '{overload.name}(..., *, Tensor(a!) out) -> ()', with all other arguments as they are"
    arguments = overload.schema.arguments
    if overload.written != (len(arguments) - 1,) or not arguments[-1].kwarg_only or arguments[-1].name != "out":
        refuse(overload, "an out variant writes into its last argument, 'out', which is keyword-only", form)
    if overload.schema.returns:
        refuse(overload, "an out variant that is not Elementwise() returns nothing", form)
    base = overload.sibling(overload.name.removesuffix(".out"))
    if base is not None and len(base.schema.returns) != 1:
        problem = f"'{base.name}' has {len(base.schema.returns)} results"
        refuse(overload, problem, "declare an operator that writes them")


def as_new(overload: Overload, values: tuple[Any, ...], results: Any) -> Any:
    """The results as new tensors, with their strides: a function may have returned an argument, or one tensor twice.

    Raises:
        ResultError: they are not as many tensors as the schema says.
    """
    from ..overlap import apart
    from ..results import check_count

    given = as_tuple(results)
    if not overload.schema.returns:
        return None  # a reference may return what it wrote to
    check_count(overload, given)
    shared = shared_strides(overload, values)
    laid_out = [in_order(result.resolve_conj().resolve_neg(), shared) for result in given]
    new = apart(laid_out, overload.all_tensors(values))
    return tuple(new) if len(new) > 1 else new[0]


def for_each_example(overload: Overload, size: int, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    """The batching rule of an operator that writes: a call for each example, whose views it writes through.

    Raises:
        RuntimeError: a batch of results would have to be written into a tensor without a batch dimension.
    """
    for i in overload.written:
        dims = in_dims[i] if isinstance(in_dims[i], (list, tuple)) else [in_dims[i]]
        if values[i] is not None and None in dims:
            raise RuntimeError(
                f"vmap: {overload.name} would have to write a batch of results into '{overload.names[i]}', which has "
                "no batch dimension; pass a batched tensor"
            )
    if not size:
        return _of_no_examples(overload, in_dims, values)
    examples = []
    for index in range(size):
        example = [_example(value, dim, index) for value, dim in zip(values, in_dims, strict=True)]
        examples.append(as_tuple(overload.call(overload.op, tuple(example))))
    if not overload.schema.returns:
        return None, None
    stacked = tuple(torch.stack(parts) for parts in zip(*examples, strict=True))
    return (stacked, (0,) * len(stacked)) if len(stacked) > 1 else (stacked[0], 0)


def _of_no_examples(overload: Overload, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
    """Empty batches of what the fake kernel says that one example's results are."""
    example = tuple(_zeros(value, dim) for value, dim in zip(values, in_dims, strict=True))
    results = as_tuple(overload.rule.fake(overload, example))
    if not overload.schema.returns:
        return None, None
    empty = tuple(result.new_empty((0, *result.shape)) for result in results)
    return (empty, (0,) * len(empty)) if len(empty) > 1 else (empty[0], 0)


def _zeros(value: Any, dim: Any) -> Any:
    """An argument of one example, of which there is none."""
    if isinstance(dim, (list, tuple)):
        return [_zeros(one, its) for one, its in zip(value, dim, strict=True)]
    if dim is None:
        return value
    return value.new_zeros([size for i, size in enumerate(value.shape) if i != dim % value.dim()])


def _example(value: Any, dim: Any, index: int) -> Any:
    if isinstance(dim, (list, tuple)):
        return [_example(one, its, index) for one, its in zip(value, dim, strict=True)]
    return value if dim is None else value.select(dim, index)
