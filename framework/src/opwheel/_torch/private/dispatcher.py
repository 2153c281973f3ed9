"""What the dispatcher has, and registrations."""

from __future__ import annotations

import _ctypes
import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..lookup import Missing, find, found, is_missing, needed

every_operator = find("torch._C._dispatch_get_all_op_names")  # with a schema or a kernel, and the namespace
has_fallback = find("torch._C._dispatch_has_backend_fallback")  # a key, of the enumeration

_dispatch_has_kernel_for_dispatch_key = find("torch._C._dispatch_has_kernel_for_dispatch_key")
_singleton = find("torch._library.simple_registry.singleton")
_dispatch_find_dangling_impls = find("torch._C._dispatch_find_dangling_impls")
_dispatch_key_for_device = find("torch._C._dispatch_key_for_device")
_dispatch_keyset_full = find("torch._C._dispatch_keyset_full")
_dispatch_dump_table = find("torch._C._dispatch_dump_table")
_dispatch_key_parse = find("torch._C._dispatch_key_parse")
_dispatch_library = find("torch._C._dispatch_library")
_jit_resolve_packet = find("torch._C._jit_resolve_packet")
_dispatch_dump = find("torch._C._dispatch_dump")
_DispatchKey = find("torch._C.DispatchKey")
_defs = find("torch.library._defs")
_get_privateuse1_backend_name = find("torch._C._get_privateuse1_backend_name")
_destroy = find("torch.library.Library._destroy")

_SEEING = (
    "torch._C._dispatch_dump",
    "torch._C._dispatch_dump_table",
    "torch._C._dispatch_find_dangling_impls",
    "torch._C._dispatch_has_backend_fallback",
    "torch._C._dispatch_get_all_op_names",
    "torch.library._defs",
)


def privateuse1_name() -> str:
    """The name of the device that a package has added to PyTorch; ``privateuseone`` where it gave none."""
    return "privateuseone" if isinstance(_get_privateuse1_backend_name, Missing) else _get_privateuse1_backend_name()


def register_fake(library: torch.library.Library, operator: str, kernel: Callable[..., Any]) -> None:
    """``torch.library.register_fake`` without its look-up of the calling source line, which delays the import."""
    if is_missing("Library._registration_handles") or isinstance(_singleton, Missing):
        torch.library.register_fake(operator, kernel, lib=library)
        return
    entry = _singleton.find(operator)
    library._registration_handles.append(entry.fake_impl.register(kernel, "opwheel.dispatch.fake", library))


def has_kernel(operator: str, dispatch_key: str) -> bool:
    """Whether a kernel is registered for exactly this key: alias keys and fallbacks do not count."""
    return bool(_dispatch_has_kernel_for_dispatch_key(operator, dispatch_key))


def why_registrations_are_not_seen() -> str:
    """Which name of those that show what is registered this PyTorch lacks; empty if it has all."""
    return next((str(found(path)) for path in _SEEING if is_missing(path)), "")


def kernel_registrations(operator: str) -> str:
    """PyTorch's own dump of what is registered for an operator, a line each."""
    return str(_dispatch_dump(operator))


def overload_for(operator: str, args: Any, kwargs: Any) -> str:
    """The name of the overload that a call of an operator without one takes, such as ``"Tensor"`` or ``"default"``."""
    return str(_jit_resolve_packet(operator, *args, **kwargs))


def kernels_without_schema() -> dict[str, str]:
    """Operators that have a kernel but no schema, with PyTorch's dump of what is registered."""
    dumps = _dispatch_find_dangling_impls()
    return {dump.partition("\n")[0].removeprefix("name: "): dump for dump in dumps}


def is_namespace_defined(namespace: str) -> bool:
    """Whether there is a TORCH_LIBRARY block, or a ``torch.library.Library`` of kind DEF, for the namespace."""
    library = needed(_dispatch_library)
    try:
        library("DEF", namespace, "").reset()
    except RuntimeError:
        return True
    return False


def operators_of(namespace: str) -> list[str]:
    """Those of :func:`every_operator` that are in a namespace."""
    return [name for name in every_operator() if name.startswith(f"{namespace}::")]


def operators_defined_in_python(namespace: str) -> list[str]:
    """Those of :func:`operators_of` that torch.library has defined, and some that are gone. Takes microseconds."""
    return [name for name in _defs if name.startswith(f"{namespace}::")]


def dispatch_keys() -> dict[str, Any]:
    """Every dispatch key under which a call can look for a kernel, by name; aliases are not among them."""
    known = _DispatchKey.__members__  # the enumeration lacks some keys, the parser others
    names = str(_dispatch_keyset_full()).removeprefix("DispatchKeySet(").removesuffix(")").split(", ")
    if isinstance(_dispatch_key_parse, Missing):
        return {name: known[name] for name in names if name in known}
    return {name: known[name] if name in known else _dispatch_key_parse(name) for name in names}


def uses_fallback(operator: str, dispatch_key: str) -> bool:
    """Whether a call that arrives at the key runs the fallback for all operators, not a kernel of this one."""
    lines = _dispatch_dump_table(operator).splitlines()
    return any(line.startswith(f"{dispatch_key}: ") and line.endswith("[backend fallback]") for line in lines)


def dispatch_key_of(device_type: str) -> str | None:
    """The key at which kernels for the plain tensors of a device are; None if PyTorch knows no such device."""
    try:
        torch.device(device_type)
    except RuntimeError:
        # The spare device gets its name at run time, perhaps only when it is used.
        is_spare = privateuse1_name() == "privateuseone" and device_type.isidentifier()
        return "PrivateUse1" if is_spare else None
    if isinstance(_dispatch_key_for_device, Missing):
        return next((key for key in dispatch_keys() if key.lower() == device_type), None)
    try:
        return str(_dispatch_key_for_device(device_type))
    except RuntimeError:
        return None


def why_no_device(device_type: str) -> str:
    """Why no tensor can be on such a device in this process; empty if PyTorch knows the device."""
    try:
        torch.device(device_type)
    except RuntimeError as error:
        known = str(error).partition(" device type at")[0]  # "Expected one of cpu, cuda, ..."
        name = privateuse1_name()
        renamed = "" if name == "privateuseone" else f", or {name!r}, which a package has registered"
        return f"PyTorch knows no device {device_type!r} in this process: {known}{renamed}"
    return ""


def define_operator(schema: str) -> Any:
    """Define an operator, whose schema names a namespace, for as long as the returned object lives."""
    namespace, _, text = schema.partition("::")
    library = _dispatch_library("FRAGMENT", namespace, "", __file__)
    library.define(text)
    return library


def register_kernel(operator: str, dispatch_key: str, kernel: Callable[..., Any]) -> Any:
    """Register a kernel on top of whatever is there, for as long as the returned object lives."""
    namespace, _, name = operator.partition("::")
    library = _dispatch_library("IMPL", namespace, "", __file__)
    library.impl(name, dispatch_key, kernel)
    return library


@contextmanager
def kept_in_dispatcher(operator: str) -> Iterator[None]:
    """While it lasts, everything else of an operator can be removed and registered again.

    The dispatcher forgets an operator of which nothing is registered, and what still refers to it, such as a traced
    program, would read freed memory.
    """
    kept = register_kernel(operator, "Negative", lambda *_, **__: None)
    try:
        yield
    finally:
        kept.reset()


def destroy_library(library: torch.library.Library) -> None:
    """Remove everything that was registered through ``library``."""
    _destroy(library)


def close_shared_library(handle: ctypes.CDLL) -> None:
    """``dlclose``: the counterpart of ``ctypes.CDLL``, which the standard library keeps to itself."""
    _ctypes.dlclose(handle._handle)
