"""Kernels in the place of those that somebody else's operators have."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..lookup import find, found, is_missing, needed
from .calls import functorch_is_active
from .dispatcher import kernel_registrations
from .tensors import is_wrapped

_dispatch_library = find("torch._C._dispatch_library")
_get_current_dispatch_mode_stack = find("torch.utils._python_dispatch._get_current_dispatch_mode_stack")
_len_torch_function_stack = find("torch._C._len_torch_function_stack")
_dispatch_tls_is_dispatch_key_included = find("torch._C._dispatch_tls_is_dispatch_key_included")
_DispatchKey = find("torch._C.DispatchKey")


def override_kernel(operator: str, dispatch_key: str, kernel: Callable[..., Any], place: str) -> Any:
    """Register a kernel in the place of another one, for as long as the returned object lives. It gets the keys, too.

    Args:
        operator: with namespace and overload.
        dispatch_key: one that is no alias.
        kernel: called with a set of dispatch keys and the arguments.
        place: what the dispatcher is to say of where it was registered.
    """
    namespace, _, name = operator.partition("::")
    library = needed(_dispatch_library)("IMPL", namespace, "", place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that there is a kernel already
        library.impl(name, dispatch_key, kernel, True)
    return library


def kernels_at(operator: str, dispatch_key: str) -> list[str]:
    """Where the kernels at exactly this key were registered, the one that runs first."""
    starts = (f"{dispatch_key}: ", f"{dispatch_key} (inactive): ")
    lines = [line for line in kernel_registrations(operator).splitlines() if line.startswith(starts)]
    return [line.partition("registered at ")[2].partition(" :: ")[0] for line in lines]


def native_overrides(operator: str, dispatch_key: str) -> list[str]:
    """Who has a kernel at an ATen operator and key through ``torch._native``: ``["triton"]``."""
    namespace, _, name = operator.partition("::")
    graphs = getattr(sys.modules.get("torch._native.registry"), "_graphs", {})
    nodes = graphs.get((name, dispatch_key), []) if namespace == "aten" else []
    return sorted({str(node.dsl_name) for node in nodes if node.active})


def forget_kernels(op: Any) -> None:
    """Let an overload look anew for the kernel of each key, which it remembers."""
    if not is_missing("torch.ops.aten.neg.default._dispatch_cache"):
        op._dispatch_cache.clear()


def user_mode_is_active() -> bool:
    """Whether a dispatch mode is entered that is not one of those with which PyTorch traces."""
    return any(getattr(mode, "_mode_key", None) is None for mode in _get_current_dispatch_mode_stack())


def active_modes() -> list[str]:
    """What is entered that changes who computes a call: modes of dispatch and torch function, transforms, tracing."""
    names = [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
    if _len_torch_function_stack() > 0:
        names.append("a mode of torch function")
    if _dispatch_tls_is_dispatch_key_included(_DispatchKey.PythonDispatcher):
        names.append("the dispatcher in Python")
    if functorch_is_active():
        names.append("a transform of torch.func")
    if torch.compiler.is_compiling():
        names.append("a compilation")
    return names


def is_plain_or_traced(tensor: torch.Tensor) -> bool:
    """Whether a tensor is PyTorch's own, or stands for such a one while PyTorch traces: no subclass with own rules."""
    kind = type(tensor)
    if kind in (torch.Tensor, torch.nn.Parameter) or is_wrapped(tensor):
        return True
    traced = (
        found("torch._subclasses.fake_tensor.FakeTensor"),
        found("torch._subclasses.functional_tensor.FunctionalTensor"),
    )
    return kind in traced or kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
