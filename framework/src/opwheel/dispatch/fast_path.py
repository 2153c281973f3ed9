"""A fast path to the backend's kernel, for calls that the dispatcher would pass through unchanged.

What cannot be asked for is not looked at: an observer of PyTorch's execution traces that runs without the profiler sees
``torch.ops`` calls, not these.

The kernel at the Autograd key is Python, which costs a call of a few elements more than its computation. The public
functions look first: plain tensors, no gradient to record, and nothing active that wants to see or change the call
(transform, mode, autocast, tracer, profiler, compiler). Then they ask the dispatcher for the backend's kernel itself.
Everything else takes the operator's way through all keys, and so does a call that a kernel refuses: there are layouts
for which the dispatcher knows what to do or to say.

What is looked at costs 0.4 us for two tensors, and every function call in between 0.05: hence no loops and no helpers.
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

# With the key that resolves tensors whose negation is a bit of theirs, such as a conjugate's imaginary part.
_CPU = private.keyset("CPU", "Negative")
_CUDA = private.keyset("CUDA", "Negative")
_XPU = private.keyset("XPU", "Negative")


class Kernels(dict[str, Callable[..., Any]]):
    """For each overload of a namespace what the dispatcher calls below the keys that :func:`fast_path_keys` gives.

    They are called with these keys and the overload's arguments.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self._namespace = namespace

    def __missing__(self, overload: str) -> Callable[..., Any]:
        # When it is called for the first time: the look-up of all of them would delay the import.
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
    """Let the operator itself repeat what a kernel refused, in its words; anything else is raised.

    Raises:
        RuntimeError: the error, where it has a class that says more, or a code: the call may have written.
    """
    raise_if_out_of_memory(error)
    if type(error) is not RuntimeError or has_code(error):
        raise error


@after_import("torch._dynamo")
def _let_the_compiler_see_operators() -> None:
    """Dynamo follows the public functions; it is to find operators there, and no questions after PyTorch's state."""
    from torch._dynamo.decorators import substitute_in_graph

    @substitute_in_graph(fast_path_keys)
    def _never(a: Any, b: Any, c: Any) -> None:  # noqa: ARG001
        return None
