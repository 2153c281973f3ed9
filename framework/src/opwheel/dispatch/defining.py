"""An operator from a function, in one cell of a notebook; running the cell again replaces it."""

from __future__ import annotations

import difflib
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from .._torch import private
from .author_functions import check_parameters, is_numpy_caller, kernel_of, reference_of
from .autocast_policy import AutocastDeclaration
from .declaration import CompilePolicy, Derivative, Operator
from .definable import check_name, split_schema
from .functions import renew_function, retire_function
from .python_operators import PythonOperators, policy_of
from .results import owner_of
from .rules import Opaque, Rule
from .sharded_reduction import ShardedReduction

_Function = Callable[..., Any]


def define(
    schema: str,
    *,
    reference: _Function | None = None,
    device_type: str = "cpu",
    kernels: Mapping[str, _Function] = MappingProxyType({}),
    rule: Rule = Opaque(),  # noqa: B008  # has no state
    derivatives: Mapping[str, Derivative] | None = MappingProxyType({}),
    not_differentiable: tuple[str, ...] = (),
    autocast: AutocastDeclaration = "promote",
    compile: CompilePolicy = "fuse",  # noqa: A002  # the field's name
    flops: int | _Function = 1,
    invariant: Mapping[str, Any] = MappingProxyType({}),
    placements: tuple[str, ...] = (),
    sharded: ShardedReduction | None = None,
    fake: _Function | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Callable[[_Function], _Function]:
    """Decorator: define an operator whose kernel is the function, in NumPy, PyTorch or a binding to something else.

    ::

        @opwheel.define(
            "mine::softplus(Tensor x, float beta=1.0) -> Tensor",
            reference=lambda x, beta: torch.log1p(torch.exp(beta * x)) / beta,
        )
        def softplus(x, beta):
            return torch.from_numpy(np.log1p(np.exp(beta * x.numpy())) / beta)

    Shapes, derivatives of any order, ``vmap``, autocast, ``torch.compile`` and export follow, as they do for
    :class:`Operator`, whose fields the arguments are. Defined again, by the same cell or another one, the operator is
    replaced. Functions that were obtained before compute the new one, or raise where the schema is another one;
    overloads in ``torch.ops`` are the new one in any case, also for exported programs, which find them by name. What
    ``torch.compile`` has compiled in this process is compiled again. Where a definition is refused, nothing stays of
    it, and the one before it is in place.

    Args:
        schema: with a namespace of your own.
        reference: the same in PyTorch's operators, called with the schema's arguments; without one the function
            itself, which then must not leave PyTorch.
        device_type: of the tensors that the function computes on.
        kernels: for other device types, the functions that compute there.
        rule: as in :class:`Operator`.
        derivatives: as in :class:`Operator`; without them the reference is differentiated.
        not_differentiable: as in :class:`Operator`.
        autocast: as in :class:`Operator`.
        compile: as in :class:`Operator`.
        flops: as in :class:`Operator`.
        invariant: as in :class:`Operator`.
        placements: as in :class:`Operator`.
        sharded: as in :class:`Operator`.
        fake: as in :class:`Operator`.
        memory_format: as in :class:`Operator`.

    Returns:
        A decorator that gives the operator's public function: with signature and types of the schema, and the
        function's docstring.

    Raises:
        ValueError: the schema is not understood, or the name is PyTorch's or somebody else's; and from the decorator: a
            function with other parameters than the schema, a device type without tensors in this PyTorch, a view, or
            what an operator's rule or derivatives cannot carry.

    Functions are called with the schema's arguments, positional ones by position, keyword-only ones by name. Tensors
    that a kernel gets record no gradient, so that ``.numpy()`` works. What it returns is compared with the reference,
    or ``fake``, in the first call of each kind; a call raises RuntimeError where it differs.
    """
    namespace, text = checked_schema(schema)
    full = f"{namespace}::{text}"
    qualified, name = full.partition("(")[0], text.partition("(")[0]

    def decorate(function: _Function) -> _Function:
        by_device = {device_type: function, **kernels}
        _check_functions(full, reference, by_device, fake)
        operator = Operator(
            name,
            reference=reference or reference_of(qualified, function),
            rule=rule,
            derivatives=derivatives,
            not_differentiable=not_differentiable,
            autocast=autocast,
            compile=compile,
            flops=flops,
            invariant=invariant,
            placements=placements,
            sharded=sharded,
            fake=fake,
            memory_format=memory_format,
            doc=inspect.getdoc(function) or full,
        )
        made = {device: kernel_of(qualified, kernel) for device, kernel in by_device.items()}
        operators = PythonOperators(namespace, {text: made}, [operator], policy_of(namespace))
        return install_definition(operators, function.__module__ or namespace)

    return decorate


# By namespace and name: what is registered, and the function that callers have.
_defined: dict[tuple[str, str], tuple[PythonOperators, _Function]] = {}
_lock = threading.RLock()  # one definition at a time: it replaces what it finds, and registers others again


def checked_schema(schema: str) -> tuple[str, str]:
    """Namespace and schema of an operator that may be defined, or was by :func:`install_definition`.

    Raises:
        ValueError: the schema is not understood, or the name is somebody else's.
    """
    namespace, text = split_schema(schema)
    name = text.partition("(")[0]
    with _lock:
        if (namespace, name) not in _defined:
            check_name(namespace, name)
    return namespace, text


def install_definition(new: PythonOperators, module: str) -> _Function:
    """Define one operator, or replace the one that was defined by its name; where that fails, nothing changes.

    Args:
        new: the operator.
        module: that will have the function.

    Returns:
        The public function.
    """
    new.check()
    with _lock:
        return _install(new, module)


def _install(new: PythonOperators, module: str) -> _Function:
    namespace, name = new.namespace, new.schemas[0].partition("(")[0]
    if (namespace, name) not in _defined:
        function = new.install(module)[name]
        _defined[namespace, name] = new, function
        return function
    old, function = _defined[namespace, name]
    has_changed = old.schemas != new.schemas
    with private.kept_in_dispatcher(f"{namespace}::{name}"):
        left = old.remove(keeps_definitions=not has_changed, keeps_references=True)
        try:
            made = new.install(module, left)
        except BaseException:
            renew_function(function, old.install(function.__module__, left)[name])
            raise
    if has_changed:
        retire_function(function, _raise_replaced(namespace, name, new.schemas[0]))
        function = made[name]
        _renew_callers(namespace, name)
    else:
        renew_function(function, made[name])
    _defined[namespace, name] = new, function
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # what was compiled has the old reference, shapes and derivatives in it
    return function


def _raise_replaced(namespace: str, name: str, schema: str) -> _Function:
    def call(*_: Any, **__: Any) -> None:
        raise RuntimeError(
            f"{namespace}::{name} was defined again with another schema, {schema}; take the function from that "
            "definition"
        )

    return call


def _renew_callers(namespace: str, name: str) -> None:
    """Register again the operators whose formulas call one that has another schema now."""
    for key, (caller, function) in _defined.items():
        if key != (namespace, name) and caller.calls(name):
            left = caller.remove(keeps_definitions=True, keeps_references=True)
            renew_function(function, caller.install(function.__module__, left)[key[1]])


def _check_functions(
    schema: str, reference: _Function | None, kernels: Mapping[str, _Function], fake: _Function | None
) -> None:
    """Refuse functions and device types that no call could use.

    Raises:
        ValueError: naming the operator and what to do.
    """
    name = schema.partition("(")[0]
    for device_type, kernel in kernels.items():
        if problem := private.why_no_device(device_type):
            raise ValueError(f"{name}: device_type is {device_type!r}{_did_you_mean(device_type)}; {problem}")
        if device_type == "meta":
            raise ValueError(
                f"{name}: device_type is 'meta', whose tensors have no data; give define(fake=...) instead"
            )
        if not callable(kernel):
            raise ValueError(f"{name}: its kernel for {device_type} is {kernel!r}, expected a function")
        check_parameters(schema, "kernel", kernel)
    for what, function in (("reference", reference), ("fake", fake)):
        if callable(function):
            check_parameters(schema, what, function)
    function = next(iter(kernels.values()))
    if reference is None and is_numpy_caller(function):
        raise ValueError(
            f"{name}: its function {owner_of(function)} calls .numpy(), and PyTorch cannot look into NumPy; give "
            "define(reference=...) the same computation in PyTorch's operators"
        )


def _did_you_mean(device_type: str) -> str:
    if device_type == "gpu":
        return ", did you mean 'cuda'"
    close = difflib.get_close_matches(device_type.lower(), ("cpu", "cuda", "xpu", "mps", "hpu"), 1)
    return f", did you mean {close[0]!r}" if close else ""
