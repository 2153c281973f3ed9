"""Operators whose kernels are Python functions: something opaque to PyTorch, or a binding to a C library.

They get shapes, derivatives, vmap and autocast rules from their declarations, as operators with C++ kernels do.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

from .._torch import private
from ..registry import NoKernelError
from ..registry.policy import Policy, only_check
from .declaration import Operator
from .fallback import fallback_kernel
from .functions import Functions, check_functions, forget_functions, make_functions
from .overload import Overload
from .registration import check_overloads, declared_overloads, register, unregister
from .results import checked, owner_of

# By device type, what computes there.
Kernels = Mapping[str, Callable[..., Any]]


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
    by_device = {schema: {device_type: function} for schema, function in kernels.items()}
    made = PythonOperators(namespace, by_device, operators, policy_of(namespace))
    functions = made.install(module or namespace)
    _installed.append(made)
    return functions


class Left(NamedTuple):
    """What :meth:`PythonOperators.remove` leaves: schemas, and the objects in ``torch.ops`` that programs may have."""

    definitions: torch.library.Library | None
    handles: tuple[tuple[Any, Any], ...]


class PythonOperators:
    """Operators with kernels in Python, which are defined and registered together, and removed together.

    Args:
        namespace: of the operators.
        kernels: for each schema, without the namespace, the function for each device type.
        operators: a declaration for each schema.
        policy: which results are checked.
        device_types: that kernels are for which a subclass registers.

    Raises:
        ValueError: PyTorch knows no such device. Nothing has been registered.
    """

    def __init__(
        self,
        namespace: str,
        kernels: Mapping[str, Kernels],
        operators: Iterable[Operator],
        policy: Policy,
        device_types: tuple[str, ...] = (),
    ) -> None:
        self.schemas = tuple(kernels)
        self.namespace = namespace
        self._kernels = kernels
        self._operators = tuple(operators)
        in_python = dict.fromkeys(device for functions in kernels.values() for device in functions)
        for device_type in in_python:
            if problem := private.why_no_device(device_type):
                raise ValueError(f"{namespace}: device_type is {device_type!r}; {problem}")
        device_types = (*in_python, *device_types)
        self._description = _PythonLibrary(namespace, self.schemas, device_types, policy)
        self._definitions: torch.library.Library | None = None
        self._target: torch.library.Library | None = None
        self.overloads: dict[str, Overload] = {}

    def check(self) -> None:
        """Refuse what :meth:`install` would, before anything is defined.

        Raises:
            ValueError: as :func:`register`.
        """
        overloads = declared_overloads(self._description, self._operators)
        for overload in overloads.values():
            overload.is_random = bool(_tags(overload.schema_text))  # there is no operator yet that has them
        check_overloads(overloads)
        for functions, overload in zip(self._kernels.values(), overloads.values(), strict=True):
            for function in functions.values():
                overload.rule.python_kernel(overload, function)
        check_functions(overloads)

    def calls(self, name: str) -> bool:
        """Whether a formula may call the operator of that name."""
        formulas = [formula for one in self._operators for formula in (one.derivatives or {}).values()]
        return any(isinstance(formula, str) and re.search(rf"\b{name}\b", formula) for formula in formulas)

    def install(self, module: str, left: Left | None = None) -> Functions:
        """Define the operators, and register everything that follows from them. Where that fails, all is undone.

        Args:
            module: that will have the functions.
            left: by operators of the same names, whose places these take.

        Returns:
            The public functions by name.

        Raises:
            ValueError: as :func:`register`.
        """
        left = left or Left(None, ())
        try:
            self._definitions = left.definitions or self._define()
            if left.definitions is None:
                for overload, packet in left.handles:
                    private.renew_operator(overload, packet)
            self.overloads = register(self._description, self._operators)
            self._register_kernels()
            return make_functions(module, self.overloads)
        except BaseException:
            self.remove(keeps_definitions=left.definitions is not None)
            raise

    def remove(self, *, keeps_definitions: bool = False, keeps_references: bool = False) -> Left:
        """Remove what :meth:`install` has registered.

        Args:
            keeps_definitions: leave the schemas, for operators with the same ones.
            keeps_references: for graphs that have been recorded.
        """
        handles = tuple((overload.op, overload.packet) for overload in self.overloads.values())
        if self.overloads:  # else register() has undone what it did, or was not called
            forget_functions(self.overloads)
            unregister(self._description, keeps_references=keeps_references)
        if self._target is not None:
            private.destroy_library(self._target)
        definitions, self._definitions, self._target, self.overloads = self._definitions, None, None, {}
        if keeps_definitions or definitions is None:
            return Left(definitions, handles)
        private.destroy_library(definitions)
        return Left(None, handles)

    def _define(self) -> torch.library.Library:
        definitions = torch.library.Library(self.namespace, "FRAGMENT")
        try:
            for schema in self.schemas:
                definitions.define(schema, tags=_tags(schema))
        except BaseException:
            private.destroy_library(definitions)
            raise
        return definitions

    def _register_kernels(self) -> None:
        self._target = torch.library.Library(self.namespace, "IMPL")
        check = self._description.policy.check
        for functions, overload in zip(self._kernels.values(), self.overloads.values(), strict=True):
            for device_type, function in functions.items():
                kernel = overload.rule.python_kernel(overload, function)
                kernel = checked(overload, kernel, check, partial(owner_of, function))
                self._target.impl(overload.name, kernel, str(private.dispatch_key_of(device_type)))
            # Also for layouts such as sparse, which a schema library in C++ answers for.
            self._target.impl(overload.name, fallback_kernel(overload, self._description), "CompositeExplicitAutograd")


_installed: list[PythonOperators] = []  # registrations last as long as these


def _tags(schema: str) -> tuple[torch.Tag, ...]:
    return (torch.Tag.nondeterministic_seeded,) if "Generator" in schema else ()


def policy_of(namespace: str) -> Policy:
    """What the environment says of results; nothing else concerns a library without backends."""
    policy = only_check(os.environ, namespace.upper())
    for finding in policy.findings:
        warnings.warn(str(finding), RuntimeWarning, stacklevel=3)
    return policy


class _PythonLibrary(NamedTuple):
    """There are no backends to look for: who is on another device converts."""

    namespace: str
    schemas: tuple[str, ...]
    device_types: tuple[str, ...]
    policy: Policy

    def load_pending(self) -> bool:
        return False

    def backend_at(self, operator: str, dispatch_key: str) -> str:  # noqa: ARG002
        return ""

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        what = f"{self.namespace}::{operator} has no kernel for {device_type} tensors"
        if layout != "strided":
            return NoKernelError("OPWHEEL-E001", f"{what} of layout {layout}; convert them with .to_dense()")
        return NoKernelError(
            "OPWHEEL-E001", f"{what}: it computes on {' and '.join(self.device_types)}; move them with .to(...)"
        )
