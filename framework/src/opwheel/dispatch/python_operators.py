"""Operators whose kernels are Python functions: something opaque to PyTorch, or a binding to a C library.

They get shapes, derivatives, vmap and autocast rules from their declarations, as operators with C++ kernels do.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

from ..registry import NoKernelError
from ..registry.policy import Policy, only_check
from .declaration import Operator
from .fallback import fallback_kernel
from .functions import Functions, make_functions
from .registration import register
from .results import checked, owner_of

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
            arguments, keyword-only ones by name, tensors as they are given; it returns a tensor or a tuple of them, or
            None where the schema ends with ``-> ()``. What it returns becomes contiguous; number, dtypes, shapes and
            device are compared with those of the reference on the device "meta", in the first call of each kind (same
            dtypes and dimensions) and with ``<NAMESPACE>_CHECK=1`` in every one. The function of an
            :class:`Elementwise` operator is called with contiguous tensors, all of the result's shape and in float64
            for float64 results, else in float32; it returns a floating-point tensor of that shape and at least the
            result's precision, or a tuple of them, which is rounded to the result's dtype and laid out as PyTorch's own
            operators would.
        operators: a declaration for each schema.
        device_type: of the tensors that the kernels can compute on.
        module: the Python module that will have the functions, for ``pickle``: ``__name__``.

    Returns:
        The public functions by name, as a library in C++ has them: those with a docstring.

    Raises:
        ValueError: a schema has no declaration, or the other way round, or its rule cannot carry it.

    A call raises RuntimeError where a kernel's results are not what the operator promises.
    """
    library = torch.library.Library(namespace, "FRAGMENT")
    for schema in kernels:
        library.define(schema, tags=(torch.Tag.nondeterministic_seeded,) if "Generator" in schema else ())
    _libraries.append(library)
    description = _PythonLibrary(namespace, tuple(kernels), device_type, _policy(namespace))
    overloads = register(description, operators)
    for function, overload in zip(kernels.values(), overloads.values(), strict=True):
        kernel = overload.rule.python_kernel(overload, function)
        kernel = checked(overload, kernel, description.policy.check, partial(owner_of, function))
        library.impl(overload.name, kernel, device_type.upper())
        # Also for layouts such as sparse, which a schema library in C++ answers for.
        library.impl(overload.name, fallback_kernel(overload, description), "CompositeExplicitAutograd")
    return make_functions(module or namespace, overloads)


def _policy(namespace: str) -> Policy:
    """What the environment says of results; nothing else concerns a library without backends."""
    policy = only_check(os.environ, namespace.upper())
    for finding in policy.findings:
        warnings.warn(str(finding), RuntimeWarning, stacklevel=3)
    return policy


class _PythonLibrary(NamedTuple):
    """There are no backends to look for: who is on another device converts."""

    namespace: str
    schemas: tuple[str, ...]
    device_type: str
    policy: Policy

    def load_pending(self) -> bool:
        return False

    def backend_at(self, operator: str, dispatch_key: str) -> str:  # noqa: ARG002
        return ""

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        what = f"{self.namespace}::{operator} has no kernel for {device_type} tensors"
        if layout != "strided":
            return NoKernelError("OPWHEEL-E001", f"{what} of layout {layout}; convert them with .to_dense()")
        return NoKernelError("OPWHEEL-E001", f"{what}: it computes on {self.device_type}; move them with .to(...)")
