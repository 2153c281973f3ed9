"""Operators whose kernels are Python functions: something opaque to PyTorch, or a binding to a C library.

They get shapes, derivatives, vmap and autocast rules from their declarations, as operators with C++ kernels do.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..registry import NoKernelError
from ..registry.policy import Policy
from .declaration import Operator
from .elementwise import compute_dtype, has_shape, infer, output_strides, prepare
from .fallback import fallback_kernel
from .functions import Functions, make_functions
from .overload import Overload
from .registration import register

# Definitions and kernels last as long as these objects.
_libraries: list[torch.library.Library] = []


def register_python(
    namespace: str,
    kernels: Mapping[str, Callable[..., Any]],
    operators: Iterable[Operator],
    device_type: str = "cpu",
    *,
    module: str = "",
) -> Functions:
    """Define operators of a namespace, with everything that follows from their declarations and kernels in Python.

    Args:
        namespace: ``torch.ops.<namespace>`` will have the operators.
        kernels: for each schema, without the namespace, the function that computes it. It is called with the schema's
            arguments, tensors contiguous, all of the result's shape and in float64 for float64 results, else in
            float32; it returns a tensor of that shape, or a tuple of them. The result is rounded to the result's dtype
            and laid out as PyTorch's own operators would.
        operators: a declaration for each schema.
        device_type: of the tensors that the kernels can compute on.
        module: the Python module that will have the functions, for ``pickle``: ``__name__``.

    Returns:
        The public functions by name, as a library in C++ has them: those with a docstring.

    Raises:
        ValueError: a schema overwrites an argument, or has no declaration, or the other way round.
    """
    library = torch.library.Library(namespace, "FRAGMENT")
    for schema in kernels:
        if "(a!)" in schema:
            raise ValueError(
                f"{namespace}: {schema}: a Python kernel returns new tensors, it cannot overwrite arguments"
            )
        library.define(schema)
    _libraries.append(library)
    description = _PythonLibrary(namespace, tuple(kernels), device_type)
    overloads = register(description, operators)
    for function, overload in zip(kernels.values(), overloads.values(), strict=True):
        library.impl(overload.name, _kernel(overload, function), device_type.upper())
        # Also for layouts such as sparse, which a schema library in C++ answers for.
        library.impl(overload.name, fallback_kernel(overload, description), "CompositeExplicitAutograd")
    return make_functions(module or namespace, overloads)


class _PythonLibrary(NamedTuple):
    """There are no backends to look for: who is on another device converts."""

    namespace: str
    schemas: tuple[str, ...]
    device_type: str
    policy: Policy = Policy()

    def load_pending(self) -> bool:
        return False

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        what = f"{self.namespace}::{operator} has no kernel for {device_type} tensors"
        if layout != "strided":
            return NoKernelError("OPWHEEL-E001", f"{what} of layout {layout}; convert them with .to_dense()")
        return NoKernelError("OPWHEEL-E001", f"{what}: it computes on {self.device_type}; move them with .to(...)")


def _kernel(overload: Overload, function: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        shape, dtype = infer(overload, args)
        tensors = overload.tensors(args)
        prepared = prepare(args, compute_dtype(dtype))
        answer = function(*(value.contiguous() if isinstance(value, Tensor) else value for value in prepared))
        results = answer if isinstance(answer, tuple) else (answer,)
        if len(results) != len(overload.schema.returns):
            raise RuntimeError(
                f"{overload.qualified_name}: its kernel returned {len(results)} values, the schema has "
                f"{len(overload.schema.returns)}"
            )
        strides = output_strides(tensors, shape)
        laid_out = tuple(_laid_out(overload, result, tensors[0], shape, strides, dtype) for result in results)
        return laid_out if isinstance(answer, tuple) else laid_out[0]

    return kernel


def _laid_out(
    overload: Overload, result: Any, like: Tensor, shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    if not isinstance(result, Tensor) or not has_shape(result, shape):
        given = f"a tensor of shape {tuple(result.shape)}" if isinstance(result, Tensor) else repr(result)
        raise RuntimeError(
            f"{overload.qualified_name}: its kernel returned {given}, expected a tensor of shape {tuple(shape)}"
        )
    # A new tensor in any case: the function may have handed back an argument.
    return like.new_empty_strided(shape, strides, dtype=dtype).copy_(result)
