"""Kernels in Python for a backend: checks, shapes and allocation around them, as the C++ SDK has for those in C++."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from .._torch import private
from ..registry import references
from .kernel_errors import LAUNCH, has_code
from .overlap import Overlap, check_elements_apart, overlap
from .overload import Overload, as_tuple
from .registration import library_of, overloads_of
from .results import ResultError, checked, copy_results, owner_of
from .rules import Elementwise
from .tensor_iterator import check_output, compute_dtype, grown, has_shape, infer, output_strides

MAX_DIMS = 64  # as in opwheel/detail/layout.h

Launch = Callable[[str, tuple[Tensor, ...], tuple[Any, ...]], None]


def implement(target: torch.library.Library, overloads: Iterable[Overload], device_type: str, launch: Launch) -> None:
    """Register a backend's kernels for these overloads: what ``Backend(register=...)`` calls.

    Args:
        target: what ``register`` was given; it knows the dispatch key.
        overloads: of the operator library, those that the backend covers.
        device_type: of the tensors that the backend computes on.
        launch: ``launch(name, outputs, args)`` computes the operator ``name`` (without its overload) into ``outputs``,
            tensors of the result's dtype. ``args`` are the schema's arguments, with tensors expanded to the result's
            shape, each in its own dtype; an output may be the very elements of one of them. float16 and bfloat16 are
            to be computed in float32 and rounded once. It is not called for empty results.
    """
    for overload in overloads:
        make = _mutating if overload.mutates else _functional
        target.impl(overload.name, make(overload, device_type, _naming(launch, target, overload)))


def implement_functions(
    target: torch.library.Library,
    overloads: Iterable[Overload],
    device_type: str,
    functions: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> None:
    """Register a backend's kernels for operators of any rule: what ``Backend(register=...)`` calls.

    Args:
        target: what ``register`` was given; it knows the dispatch key.
        overloads: of the operator library, those that the backend covers.
        device_type: of the tensors that the backend computes on.
        functions: by the operator's name, called as :func:`register_python` calls its kernels. An operator without one
            is computed by its reference, and ``doctor``, ``explain`` and the conformance kit say so. Results are
            compared as there, in every call with ``<PREFIX>_CHECK=1`` of the operator library.
    """
    key = target.dispatch_key or private.dispatch_key_of(device_type)
    for overload in overloads:
        name = overload.operator.name
        if name not in functions:
            references.note(overload.qualified_name, str(key))
        if isinstance(overload.rule, Elementwise):
            known = {name: functions.get(name, overload.operator.reference)}
            implement(target, [overload], device_type, in_compute_dtype(known))
        else:
            function = functions.get(name, overload.operator.reference)
            kernel = overload.rule.python_kernel(overload, function)
            owner = partial(_owner, function, target, overload)
            target.impl(overload.name, checked(overload, kernel, library_of(overload).policy.check, owner))


def implement_references(target: torch.library.Library, device_type: str) -> None:
    """Register the reference of every operator that the backend has no kernel for: what ``register`` may call.

    A backend whose libraries have kernels for some operators covers all of them with it; one that gets a kernel is not
    computed by its reference any more when the backend is loaded the next time.

    Args:
        target: what ``register`` was given; it knows the dispatch key.
        device_type: of the tensors that the backend computes on.
    """
    key = str(target.dispatch_key)
    without = [one for one in overloads_of(target).values() if not private.has_kernel(one.qualified_name, key)]
    implement_functions(target, without, device_type)


def in_compute_dtype(functions: dict[str, Callable[..., Any]]) -> Launch:
    """A launch from functions that return their results: simple, with a conversion pass for each tensor.

    Args:
        functions: by the operator's name. Called with the schema's arguments, all tensors of the result's shape and in
            float64 for float64 results, else in float32; returns a floating-point tensor of that shape and at least the
            result's precision, or a tuple of them. Anything else is a RuntimeError.
    """

    def launch(name: str, outputs: tuple[Tensor, ...], args: tuple[Any, ...]) -> None:
        dtype = compute_dtype(outputs[0].dtype)
        answer = functions[name](*(value.to(dtype) if isinstance(value, Tensor) else value for value in args))
        try:
            copy_results(name, as_tuple(answer), outputs)
        except ResultError as error:
            raise ResultError(f"{error}; the kernel is {owner_of(functions[name])}") from error

    return launch


def _naming(launch: Launch, target: torch.library.Library, overload: Overload) -> Launch:
    """The launch; what it says of results names the backend, too."""

    def launch_named(name: str, outputs: tuple[Tensor, ...], args: tuple[Any, ...]) -> None:
        try:
            launch(name, outputs, args)
        except ResultError as error:
            raise ResultError(f"{LAUNCH} {error}{_of_backend(target, overload)}") from error

    return launch_named


def _owner(function: Callable[..., Any], target: torch.library.Library, overload: Overload) -> str:
    return f"{owner_of(function)}{_of_backend(target, overload)}"


def _of_backend(target: torch.library.Library, overload: Overload) -> str:
    backend = library_of(overload).backend_at(overload.name, str(target.dispatch_key))
    return f", of {backend}" if backend else ""


def _functional(overload: Overload, device_type: str, launch: Launch) -> Callable[..., Any]:
    count = len(overload.schema.returns)

    def kernel(*args: Any) -> Any:
        shape, dtype = _check(overload, args, device_type)
        tensors = overload.tensors(args)
        strides = output_strides(tensors, shape)
        outputs = tuple(tensors[0].new_empty_strided(shape, strides, dtype=dtype) for _ in range(count))
        _run(overload, launch, outputs, args, shape)
        return outputs if count > 1 else outputs[0]

    return kernel


def _mutating(overload: Overload, device_type: str, launch: Launch) -> Callable[..., Tensor]:
    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        # 1. Check inputs and output; no tensor has changed when one of these raises.
        shape, dtype = _check(overload, args, device_type)
        tensors, target = overload.tensors(args), overload.mutated(args, kwargs)
        check_output(overload, target, shape, dtype, tensors[0].device)
        result = target if has_shape(target, shape) else grown(target, shape, output_strides(tensors, shape))
        _check_memory(overload, overload.target, result)
        # What cannot be written in place is computed elsewhere first.
        staged = torch.empty_like(result) if _needs_staging(overload, result, args) else None
        if staged is not None:
            _run(overload, launch, (staged,), args, shape)
        # 2. Write.
        if result is not target:
            target.as_strided_(shape, result.stride())
        if staged is None:
            _run(overload, launch, (target,), args, shape)
        else:
            with _writing(overload):
                target.copy_(staged)
        return target

    return kernel


def _run(
    overload: Overload, launch: Launch, outputs: tuple[Tensor, ...], args: tuple[Any, ...], shape: torch.Size
) -> None:
    if outputs[0].numel() > 0:
        name = overload.operator.name
        with _writing(overload):
            launch(name, outputs, tuple(v.expand(shape) if isinstance(v, Tensor) else v for v in args))


@contextmanager
def _writing(overload: Overload) -> Iterator[None]:
    """What fails in it may have written a part of the result: the code says so, whatever the words.

    Raises:
        RuntimeError: with the code. Errors of other classes pass: a call is made again only after a plain one.
    """
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError or has_code(error):
            raise
        raise RuntimeError(f"{LAUNCH} {overload.name}: {error}") from error


def _check(overload: Overload, args: tuple[Any, ...], device_type: str) -> tuple[torch.Size, torch.dtype]:
    """Shape and dtype of the result.

    Raises:
        RuntimeError: what no backend computes, or tensors that are not on this backend's device.
    """
    shape, dtype = infer(overload, args)
    tensors = overload.tensors(args)
    if tensors[0].device.type != device_type:
        raise RuntimeError(
            f"{overload.name}: argument '{overload.tensor_arguments[0]}' is on {tensors[0].device}, but this kernel "
            f"computes on {device_type}; move it with .to(...)"
        )
    if max(tensor.dim() for tensor in tensors) > MAX_DIMS:
        raise RuntimeError(
            f"{overload.name}: tensors of more than {MAX_DIMS} dimensions are not supported. Merge some of them first, "
            "for instance with .flatten(...)"
        )
    if shape.numel() > 0:
        for name, tensor in zip(overload.tensor_arguments, tensors, strict=True):
            _check_memory(overload, name, tensor)
    return shape, dtype


def _check_memory(overload: Overload, name: str, tensor: Tensor) -> None:
    if tensor.numel() > 0 and not private.has_memory(tensor):
        raise RuntimeError(
            f"{overload.name}: argument '{name}' has no memory: its storage was resized to nothing, or it is a "
            "tensor of a subclass without data; pass a tensor that holds its elements"
        )


def _needs_staging(overload: Overload, target: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether the result must be computed elsewhere first.

    Raises:
        RuntimeError: where PyTorch refuses, too.
    """
    check_elements_apart(overload, target)
    found = [
        (other, overlap(target, tensor))
        for other, tensor in zip(overload.arguments, args, strict=True)
        if isinstance(tensor, Tensor)
    ]
    for other, kind in found:
        if kind is Overlap.PARTIAL:
            raise RuntimeError(
                f"{overload.name}: '{overload.target}' and '{other}' share memory without being the same elements; "
                "clone one of them first"
            )
    return any(kind is Overlap.UNKNOWN for _, kind in found)
