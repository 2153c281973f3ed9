"""Registers everything that follows from the declarations."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import _torch_private as private
from .._import_hooks import after_import
from . import autocast, fake, fallback, flops, vmap
from .adinplaceorview import adinplaceorview_kernel
from .autograd import autograd_kernel
from .declaration import Operator
from .fallback import LibraryLike
from .functionalization import functionalization_kernel
from .overload import Overload

# Registrations last as long as these objects. By namespace and schemas.
_libraries: dict[tuple[str, tuple[str, ...]], torch.library.Library] = {}
_overloads: dict[str, dict[str, Overload]] = {}  # by namespace and name


def register(library: LibraryLike, operators: Iterable[Operator]) -> dict[str, Overload]:
    """Register fake, autograd, vmap, autocast and fallback kernels for every schema of ``library``.

    They replace those of an earlier attempt to import the library that failed afterwards.

    Returns:
        The overloads by name.

    Raises:
        ValueError: a schema without a declaration, or the other way round.
    """
    declared = {operator.name: operator for operator in operators}
    overloads = {}
    for schema in library.schemas:
        name = schema.partition("(")[0]
        base = name.partition(".")[0]
        operator = declared.get(base) or declared.get(base.removesuffix("_"))
        if operator is None:
            raise ValueError(f"{library.namespace}: there is a schema of {name}, but no operator {base!r} is declared")
        overloads[name] = Overload(operator, library.namespace, schema)
    missing = set(declared) - set(overloads)
    if missing:
        raise ValueError(f"{library.namespace}: {sorted(missing)} are declared, but there is no schema of them")

    _overloads[library.namespace] = overloads
    attempt = library.namespace, library.schemas
    if attempt in _libraries:
        private.destroy_library(_libraries.pop(attempt))
    target = _libraries[attempt] = torch.library.Library(library.namespace, "IMPL")
    private.keep_as_ours(target)
    for overload in overloads.values():
        _register_overload(overload, overloads, target, library)
    flops.register(overloads.values())

    @after_import("torch.distributed.tensor")  # which takes longer than all of this
    def _register_sharding() -> None:
        from . import sharding

        sharding.register(overloads.values())

    return overloads


def overloads_of(target: torch.library.Library) -> dict[str, Overload]:
    """The overloads, by name, of the operator library that a backend's ``register`` function was called for.

    The library's own module is no help there: its import, which loads the backends, is not complete.
    """
    return _overloads[target.ns]


def _register_overload(
    overload: Overload, overloads: dict[str, Overload], target: torch.library.Library, library: LibraryLike
) -> None:
    name = overload.qualified_name
    private.register_fake(target, name, fake.fake_kernel(overload))
    target.impl(overload.name, autograd_kernel(overload), "Autograd", with_keyset=True)
    target.impl(overload.name, fallback.fallback_kernel(overload, library), "CompositeExplicitAutogradNonFunctional")
    target.impl(overload.name, fallback.nested_kernel(overload), "CompositeImplicitAutogradNestedTensor")
    if overload.mutates:
        functional = overloads[overload.name.removesuffix(".out").removesuffix("_")]
        target.impl(overload.name, adinplaceorview_kernel(overload), "ADInplaceOrView", with_keyset=True)
        target.impl(overload.name, functionalization_kernel(overload, functional), "Functionalize")
        if overload.is_out:
            target.impl(overload.name, vmap.refuse_out(overload), "FuncTorchBatched")
        else:
            torch.library.register_vmap(name, vmap.in_place_rule(overload, functional), lib=target)
    else:
        torch.library.register_vmap(name, vmap.functional_rule(overload), lib=target)
        # torch.autocast leaves in-place and out variants alone.
        for device_type, key in autocast.KEYS.items():
            target.impl(overload.name, autocast.autocast_kernel(overload, device_type), key)
