"""The kernels that run where no backend has one: the reference, or an error that says what to install or convert."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._torch import private
from .overload import Overload, tensors_in

if TYPE_CHECKING:
    from .library_like import LibraryLike

_warned: dict[tuple[str, str], object] = {}  # by namespace and device type, a mark of the call that warned


def fallback_kernel(overload: Overload, library: LibraryLike) -> Callable[..., Any]:
    """The kernel for one overload; ``library`` knows which backends there are."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        from .arguments import check_tensors
        from .backend_select import device_of  # neither is imported where every call finds a kernel

        check_tensors(overload, args, kwargs)
        values = overload.bind(args, kwargs)
        device_type = device_of(overload, values).type
        _check_not_quantized(overload, values, device_type)
        layouts = (str(tensor.layout) for tensor in overload.all_tensors(values))
        layout = next((layout for layout in layouts if layout != "torch.strided"), "strided")
        if library.load_pending():
            return overload.op(*args, **kwargs)
        key = private.dispatch_key_of(device_type)
        if not overload.all_tensors(values) and key and private.has_kernel(overload.qualified_name, key):
            # An empty list, or None: PyTorch has no tensor to choose the backend by.
            return overload.op.redispatch(private.keyset(key), *args, **kwargs)
        if library.policy.fallback != "reference" or layout != "strided":
            raise library.no_kernel_error(overload.name, device_type, layout)
        _warn_once(overload, device_type)
        return overload.rule.reference(overload, values)

    return kernel


def _check_not_quantized(overload: Overload, values: tuple[Any, ...], device_type: str) -> None:
    """Refuse quantised tensors: no backend has kernels for them, and the reference need not mean their values.

    Raises:
        NoKernelError: naming the argument and its dtype.
    """
    for argument, value in zip(overload.schema.arguments, values, strict=True):
        quantized = next((tensor.dtype for tensor in tensors_in([value]) if tensor.is_quantized), None)
        if quantized is not None:
            from ..registry.no_kernel import quantized_error

            raise quantized_error(overload.qualified_name, device_type, argument.name, str(quantized))


def nested_kernel(overload: Overload) -> Callable[..., None]:
    """The kernel for nested tensors, for which there are no backends: an error that names the argument."""

    def kernel(*args: Any, **kwargs: Any) -> None:
        from .arguments import check_tensors

        check_tensors(overload, args, kwargs)

    return kernel


def _warn_once(overload: Overload, device_type: str) -> None:
    mark = object()
    if _warned.setdefault((overload.namespace, device_type), mark) is not mark:  # some thread has, or is about to
        return
    warnings.warn(
        f"{overload.namespace} computes on {device_type} with ATen, not with a backend's fused kernels: no backend for "
        f"it is loaded and {overload.namespace.upper()}_FALLBACK=reference is set",
        RuntimeWarning,
        stacklevel=2,
    )
