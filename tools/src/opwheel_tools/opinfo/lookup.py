"""Where an operator's :class:`OpInfo` is found: in its library's module ``opinfos``, or with whoever registered it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType

import torch
from opwheel.dispatch import Library, overloads_of
from opwheel.dispatch.out_variant import OutVariant
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.registration import library_of
from opwheel.dispatch.validation import Field, are_names, check_fields, is_name, is_none_or, maps

from .declaration import OpInfo
from .out_variant import out_variant
from .samples import Tolerance

MODULE = "opinfos"
"""Of a library's package: what tools use of it, which its own import does not."""
_known: dict[str, Mapping[str, OpInfo]] = {}  # by namespace, as far as they were looked up or registered


class OpInfosError(Exception):
    """A library's module ``opinfos`` is not what it is to be."""

    code = "OPWHEEL-E083"


def op_info_of(overload: Overload) -> OpInfo:
    """What is declared for tests and benchmarks of an overload's operator; an empty one where nothing is.

    Raises:
        OpInfosError: the library's module ``opinfos`` cannot be imported, or does not fit its operators.
    """
    infos = _infos_of(overload)
    name = overload.operator.name
    if name not in infos and isinstance(overload.rule, OutVariant):
        functional = overload.siblings[name.removesuffix(".out")]
        return out_variant(infos.get(functional.name, OpInfo()), functional.operator.reference)
    return infos.get(name, OpInfo())


def register_op_infos(namespace: str, infos: Mapping[str, OpInfo]) -> None:
    """Say what tests and benchmarks need to know of operators that no package's module ``opinfos`` tells of.

    Args:
        namespace: of the operators, which are registered already, by :func:`opwheel.dispatch.register_python` say.
        infos: by the operators' names. They replace those of an earlier call.

    Raises:
        ValueError: a name is none of the namespace's operators, or a field is not what it is to be.
        KeyError: nothing registered the namespace.
    """
    overloads = overloads_of(torch.library.Library(namespace, "FRAGMENT"))
    _check(namespace, infos, overloads.values())
    _known[namespace] = infos


def module_of(package: str, name: str) -> ModuleType | None:
    """A module of a library for tools, such as ``"opinfos"``, imported; None where there is none.

    Raises:
        OpInfosError: it raises, or the package that it is in does.
    """
    outer = name.rpartition(".")[0]
    if outer and module_of(package, outer) is None:
        return None
    full_name = f"{package}.{name}"
    try:
        return importlib.import_module(full_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == full_name:
            return None
        problem = f"{full_name} cannot be imported: {type(error).__name__}: {error}"
        raise OpInfosError(f"{problem}; correct the module, which tests and benchmarks need") from error


def _infos_of(overload: Overload) -> Mapping[str, OpInfo]:
    if overload.namespace not in _known:
        library = library_of(overload)
        found = _infos_of_package(library) if isinstance(library, Library) else {}
        _known[overload.namespace] = found
    return _known[overload.namespace]


def _infos_of_package(library: Library) -> Mapping[str, OpInfo]:
    module = module_of(library.package, MODULE)
    if module is None:
        return {}
    infos = getattr(module, "OP_INFOS", None)
    if not isinstance(infos, Mapping):
        raise OpInfosError(
            f"{module.__name__}.OP_INFOS is {infos!r}, expected a dict from names of operators to "
            "opwheel_tools.OpInfo; without an operator that needs one, {}"
        )
    try:
        _check(library.namespace, infos, library.overloads.values())
    except ValueError as error:
        raise OpInfosError(f"{module.__name__}.OP_INFOS: {error}") from error
    return infos


def _check(namespace: str, infos: Mapping[str, OpInfo], overloads: Iterable[Overload]) -> None:
    known = {overload.operator.name: overload for overload in overloads}
    if unknown := [name for name in infos if name not in known]:
        raise ValueError(f"{namespace} has no operator {unknown[0]!r}; name one of {', '.join(known)}")
    for name, info in infos.items():
        if not isinstance(info, OpInfo):
            raise ValueError(f"{namespace}::{name}: {info!r} is given, expected an opwheel_tools.OpInfo")
        check_fields(f"{namespace}::{name}", info, _FIELDS)
        _check_index_arguments(info, known[name])


def _check_index_arguments(info: OpInfo, overload: Overload) -> None:
    tensors = [overload.names[i] for i in overload.tensor_positions]
    for name in info.index_arguments:
        if name not in tensors:
            raise ValueError(
                f"{overload.qualified_name}: index_arguments names {name!r}, which is no tensor argument; name one of "
                f"{', '.join(tensors)}"
            )


def _is_dtype(value: object) -> bool:
    return isinstance(value, torch.dtype)


_CALLS: Field = (is_none_or(callable), "a function that gives calls, or None")
_FIELDS: dict[str, Field] = {
    "samples": _CALLS,
    "errors": _CALLS,
    "measured": _CALLS,
    "swept": _CALLS,
    "baselines": (maps(is_name, callable), "a dict from names to functions"),
    "dtypes": (
        is_none_or(lambda value: isinstance(value, (tuple, list)) and bool(value) and all(map(_is_dtype, value))),
        "a tuple of dtypes such as torch.float32, or None",
    ),
    "index_arguments": (are_names, "a tuple of names of arguments"),
    "tolerance": (
        maps(_is_dtype, lambda one: isinstance(one, Tolerance)),
        "a dict from dtypes such as torch.float32 to Tolerance(rtol, atol)",
    ),
}
