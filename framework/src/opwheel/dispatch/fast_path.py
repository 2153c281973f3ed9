"""Calls a backend's kernel itself, where nothing else in the dispatcher would have to see the call.

The kernel at the Autograd key is Python, which costs more than a small call's computation. So the public functions look
first: plain tensors, no gradient to record, and nothing active that wants to see or change the call (transform, mode,
autocast, tracer, profiler, compiler). Then they ask the dispatcher for the backend's kernel. All other calls go through
``torch.ops`` and all dispatch keys. So does a call that the kernel refuses: the dispatcher knows what to do, or to say,
about layouts that a kernel does not know.

PyTorch does not tell whether an observer of execution traces runs without the profiler: such a one sees calls of
``torch.ops``, not these.

The look costs 0.4 us for two tensors, and every function call in it 0.05: hence no loops and no helpers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _torch_private as private
from .._import_hooks import after_import
from .._torch_private import (
    dispatch_modes,
    function_modes,
    functorch_is_active,
    is_any_autocast_enabled,
    is_profiling,
    tracing_state,
)
from .kernel_errors import has_code, raise_if_out_of_memory

# Negative is among them for tensors that are only marked as negated, such as the imaginary part of a conjugate: the
# dispatcher then computes the negated values first.
_CPU = private.keyset("CPU", "Negative")
_CUDA = private.keyset("CUDA", "Negative")
_XPU = private.keyset("XPU", "Negative")


class Kernels(dict[str, Callable[..., Any]]):
    """By overload, a function that calls the kernel: with the keys of :func:`fast_path_keys`, then the arguments."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self._namespace = namespace

    def __missing__(self, overload: str) -> Callable[..., Any]:
        # At the first call: looking all of them up would delay the import.
        operator, _, name = overload.partition(".")
        op = getattr(getattr(getattr(torch.ops, self._namespace), operator), name or "default")
        kernel = self[overload] = private.redispatch(op)
        return kernel


def fast_path_keys(a: Any, b: Any, c: Any) -> Any | None:
    """The dispatch keys of a call that nothing but a backend's kernel has to see; None for any other.

    Args:
        a: a tensor of the call, whose device decides.
        b: another one, or the first again.
        c: a third one, or the second again.
    """
    if (
        type(a) is not Tensor
        or type(b) is not Tensor
        or type(c) is not Tensor
        or ((a.requires_grad or b.requires_grad or (c is not b and c.requires_grad)) and torch.is_grad_enabled())
        or functorch_is_active()
        or dispatch_modes()
        or function_modes()
        or is_any_autocast_enabled()
        or tracing_state()
        or is_profiling()
        or forward_ad._current_level >= 0
    ):
        return None
    return _CPU if a.is_cpu else _CUDA if a.is_cuda else _XPU if a.is_xpu else None


def raise_unless_refused(error: RuntimeError) -> None:
    """Return if a kernel refused the arguments: the operator is then called, and does or says what is right.

    Raises:
        RuntimeError: any other error. One with a code must not be followed by another call: this one may have written.
    """
    raise_if_out_of_memory(error)
    if type(error) is not RuntimeError or has_code(error):
        raise error


@after_import("torch._dynamo")
def _let_the_compiler_see_operators() -> None:
    """Dynamo traces the public functions: make it find a call of the operator there, and no look at PyTorch's state."""
    from torch._dynamo.decorators import substitute_in_graph

    @substitute_in_graph(fast_path_keys)
    def _never(a: Any, b: Any, c: Any) -> None:  # noqa: ARG001
        return None
