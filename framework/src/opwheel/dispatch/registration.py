"""Registers everything that follows from the declarations."""

from __future__ import annotations

import keyword
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch

from .._import_hooks import after_import
from .._torch import private
from . import autocast, autocast_policy, calls, fake, fallback, vmap
from .declaration import Operator
from .derivatives import Derivatives
from .native_autograd import NativeAutograd
from .overload import Overload
from .rules.rule import refuse
from .validation import check_declarations

if TYPE_CHECKING:
    from .library_like import LibraryLike


class _Registered(NamedTuple):
    """What was registered for a library; it lasts as long as these objects."""

    library: LibraryLike
    overloads: dict[str, Overload]
    target: torch.library.Library
    native: NativeAutograd


_registered: dict[tuple[str, tuple[str, ...]], _Registered] = {}  # by namespace and schemas
_overloads: dict[str, dict[str, Overload]] = {}  # by namespace and name
_described: dict[str, LibraryLike] = {}  # by namespace
_lock = threading.Lock()  # while these change: a namespace goes with its last operators


def register(library: LibraryLike, operators: Iterable[Operator]) -> dict[str, Overload]:
    """Register fake, autograd, vmap, autocast and fallback kernels for every schema of ``library``.

    They replace those of an earlier attempt to import the library that failed afterwards. Nothing stays registered
    where this one fails.

    Returns:
        The overloads by name.

    Raises:
        ValueError: a schema without a declaration, or the other way round, a field that is not what it is to be, or
            what an operator's rule cannot carry.
    """
    overloads = declared_overloads(library, operators)
    for overload in overloads.values():
        if not overload.was_looked_up:  # else it may be in somebody's dict
            calls.install(overload.op)
    derivatives = check_overloads(overloads)
    unregister(library)
    target = torch.library.Library(library.namespace, "IMPL")
    try:
        native = NativeAutograd(derivatives.values())
    except BaseException:
        private.destroy_library(target)
        raise
    with _lock:
        _registered[library.namespace, library.schemas] = _Registered(library, overloads, target, native)
        _overloads.setdefault(library.namespace, {}).update(overloads)
        _described[library.namespace] = library
    try:
        for overload in overloads.values():
            _register_overload(overload, target, library)
        for name in native.refused:
            _register_autograd(derivatives[name], target)
        _register_later(overloads, library, target)
    except BaseException:
        unregister(library)
        raise
    return overloads


def unregister(library: LibraryLike, *, keeps_references: bool = False) -> None:
    """Undo :func:`register`, where it was called for a library with these schemas.

    Args:
        library: what was registered, or another one with its namespace and schemas.
        keeps_references: of native derivatives: graphs that have been recorded still call them.
    """
    with _lock:
        registered = _registered.pop((library.namespace, library.schemas), None)
        if registered is None:
            return
        of_namespace = _overloads[library.namespace]
        for name in registered.overloads:
            del of_namespace[name]
        if not of_namespace:
            del _overloads[library.namespace], _described[library.namespace]
    _unregister_later(registered)
    registered.native.remove(keeps_references=keeps_references)
    private.destroy_library(registered.target)


def declared_overloads(library: LibraryLike, operators: Iterable[Operator]) -> dict[str, Overload]:
    """The overloads that a library's schemas and declarations make, by name. Nothing is registered.

    Raises:
        ValueError: a schema without a declaration, or the other way round, or a field that is not what it is to be.
    """
    operators = tuple(operators)
    check_declarations(library.namespace, operators)
    declared = {operator.name: operator for operator in operators}
    overloads: dict[str, Overload] = {}
    for schema in library.schemas:
        name = schema.partition("(")[0]
        base = name.partition(".")[0]
        operator = declared.get(name) or declared.get(base) or declared.get(base.removesuffix("_"))
        if operator is None:
            raise ValueError(f"{library.namespace}: there is a schema of {name}, but no operator {base!r} is declared")
        if name == f"{operator.name}.out" and not operator.rule.has_variants:
            from .out_variant import out_variant  # few libraries have them

            operator = out_variant(operator)
        overloads[name] = Overload(operator, library.namespace, schema, overloads)
    missing = set(declared) - set(overloads)
    if missing:
        raise ValueError(f"{library.namespace}: {sorted(missing)} are declared, but have no schema")
    return overloads


def check_overloads(overloads: Mapping[str, Overload]) -> dict[str, Derivatives]:
    """The derivatives of those overloads that have tensors, by name. Nothing is registered.

    Raises:
        ValueError: what an operator's rule cannot carry, or derivatives that do not fit.
    """
    for overload in overloads.values():
        overload.rule.check(overload)
        if not overload.schema.returns and not overload.written:
            refuse(overload, "it returns nothing and writes nowhere", "mark what it writes to, as Tensor(a!)")
        _check_result_names(overload)
        if overload.name == overload.operator.name:
            autocast_policy.check_names(overload)
        if overload.operator.invariant and overload.name == overload.operator.name:
            from . import invariance  # few libraries claim any

            invariance.check(overload)
        if overload.operator.training:
            _check_training(overload, overloads)
        if overload.operator.placements and overload.name == overload.operator.name:
            from .placements import checked  # few operators have any by hand

            for text in overload.operator.placements:
                checked(overload, text)
        if overload.operator.sharded is not None and overload.name == overload.operator.name:
            from .placements import checked_reduction  # few operators have one

            checked_reduction(overload)
    return {name: Derivatives(overload) for name, overload in overloads.items() if overload.tensor_positions}


def _register_later(overloads: dict[str, Overload], library: LibraryLike, target: torch.library.Library) -> None:
    """What belongs to modules of PyTorch that most programs do not import, and that take long to import."""

    def is_registered() -> bool:
        registered = _registered.get((library.namespace, library.schemas))
        return registered is not None and registered.overloads is overloads

    @after_import("torch.utils.flop_counter")
    def _register_flops() -> None:
        from . import flops

        if is_registered():
            flops.register(overloads.values())

    @after_import("torch._inductor.decomposition")
    def _register_decompositions() -> None:
        from . import inductor

        if is_registered():
            inductor.register(library, overloads.values())

    @after_import("torch.distributed.tensor")
    def _register_sharding() -> None:
        from . import sharding

        if is_registered():
            sharding.register(overloads.values(), library, target)


def _unregister_later(registered: _Registered) -> None:
    """Undo :func:`_register_later`. DTensor has no function for that: its rule is replaced with the operator."""
    overloads = registered.overloads.values()
    if "torch.utils.flop_counter" in sys.modules:
        from . import flops

        flops.unregister(overloads)
    if "torch._inductor.decomposition" in sys.modules:
        from . import inductor

        inductor.unregister(registered.library, overloads)


def overloads_of(target: torch.library.Library) -> dict[str, Overload]:
    """The overloads, by name, of the operator library that a backend's ``register`` function was called for.

    The library's own module is no help there: its import, which loads the backends, is not complete.
    """
    return _overloads[target.ns]


def library_of(overload: Overload) -> LibraryLike:
    """What declared the overload."""
    return _described[overload.namespace]


def library_of_namespace(namespace: str) -> LibraryLike | None:
    """What declared operators of a namespace last."""
    return _described.get(namespace)


def native_autograd_of(library: LibraryLike) -> NativeAutograd:
    """Which operators of a library have native kernels at the Autograd key, and why others have not."""
    return _registered[library.namespace, library.schemas].native


def _check_result_names(overload: Overload) -> None:
    """Refuse results that formulas and ``not_differentiable`` could not tell apart, or could not name."""
    names = overload.result_names
    for name in names:
        if names.count(name) > 1:
            refuse(overload, f"it has {names.count(name)} results {name!r}", "give each result a name of its own")
        if keyword.iskeyword(name):
            refuse(overload, f"a formula cannot name the result {name!r}", "give it a name that is no word of Python")


def _check_training(overload: Overload, overloads: Mapping[str, Overload]) -> None:
    """Refuse an operator for training that cannot take this one's place."""
    name = overload.operator.training
    other = overloads.get(name)
    if overload.mutates or overload.operator.derivatives:
        problem = "it writes" if overload.mutates else "it has derivatives of its own"
        refuse(overload, f"training={name!r}, but {problem}", "leave one of the two out")
    if other is None or other is overload or other.operator.training:
        refuse(overload, f"training={name!r} is not another operator of the library", "declare it, with derivatives")
    mine, theirs = overload.schema, other.schema
    same = [(a.name, str(a.real_type)) for a in mine.arguments] == [
        (a.name, str(a.real_type)) for a in theirs.arguments
    ]
    if not same or len(theirs.returns) < len(mine.returns) or other.mutates:
        refuse(
            overload,
            f"training={name!r} has the schema {other.schema_text}",
            "give it the same arguments, and the same results before its own",
        )


def _register_overload(overload: Overload, target: torch.library.Library, library: LibraryLike) -> None:
    name = overload.name
    private.register_fake(target, overload.qualified_name, fake.fake_kernel(overload))
    target.impl(name, fallback.fallback_kernel(overload, library), "CompositeExplicitAutogradNonFunctional")
    if not overload.tensor_positions:
        from . import backend_select  # few libraries have such operators

        target.impl(name, backend_select.backend_select_kernel(overload), "BackendSelect")
        return
    target.impl(name, vmap.batched_kernel(overload), "FuncTorchBatched")
    if overload.is_random and not overload.mutates:
        target.impl(name, vmap.random_kernel(overload), "FuncTorchVmapMode")
    target.impl(name, fallback.nested_kernel(overload), "CompositeImplicitAutogradNestedTensor")
    if overload.mutates:
        functionalize = overload.rule.functionalize(overload)
        if functionalize is not None:
            target.impl(name, functionalize, "Functionalize")
        else:
            from . import reinplacing  # few libraries have such operators

            reinplacing.register(overload)
    else:
        # torch.autocast leaves operators that write alone.
        for device_type, key in autocast.KEYS.items():
            target.impl(name, autocast.autocast_kernel(overload, device_type), key)


def _register_autograd(derivatives: Derivatives, target: torch.library.Library) -> None:
    """The kernels in Python, where there are no native ones."""
    from .adinplaceorview import adinplaceorview_kernel  # not imported where nothing needs them
    from .autograd import autograd_kernel

    overload = derivatives.overload
    target.impl(overload.name, autograd_kernel(derivatives), "Autograd", with_keyset=True)
    if overload.mutates:
        target.impl(overload.name, adinplaceorview_kernel(overload), "ADInplaceOrView", with_keyset=True)
