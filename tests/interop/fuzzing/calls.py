"""One call, three ways: by the operator, from ATen's operators on copies, and as PyTorch itself has it.

All of them are functions of tensors alone: those of the schema, and after them an out= tensor.
"""

from __future__ import annotations

import muladd
import torch
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.tensor_iterator import decompose, has_shape, result_dtype
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack

from tests.interop.fuzzing.chains import is_plain

NUMBER = 1.5


class ContractError(AssertionError):
    """A call that did what it must not; no chain turns it into a result."""


class DocumentedError(Exception):
    """The documentation says that this is refused."""


def _split(overload: Overload, tensors: tuple[Tensor, ...]) -> tuple[list, dict]:
    given = iter(tensors)
    args = [next(given) if name in overload.tensor_arguments else NUMBER for name in overload.arguments]
    return args, {"out": next(given)} if overload.is_out else {}


def operator(overload: Overload, is_public: bool):
    """The operator under test, by its public function or through torch.ops.

    Raises:
        ContractError: the call wrote and then raised, or another tensor than the overwritten one came back.
    """
    public = getattr(muladd, overload.name.removesuffix(".out"), None)
    function = public if is_public and public else overload.op

    def call(*tensors):
        args, out = _split(overload, tensors)
        if not overload.mutates or torch.compiler.is_compiling() or not all(map(is_plain, tensors)):
            return function(*args, **out)
        before = [tensor.detach().clone() for tensor in tensors]
        try:
            result = function(*args, **out)
        except (RuntimeError, TypeError) as error:  # checkpoint ends a repetition with another one
            for tensor, old in zip(tensors, before, strict=True):
                if not has_shape(tensor, old.shape) or not torch.equal(tensor.detach(), old):
                    raise ContractError(f"{overload.name} has written, and then refused: {error}") from error
            raise
        if result is not overload.mutated(tuple(args), out):
            raise ContractError(f"{overload.name} returned another tensor than the one that it overwrote")
        return result

    return call


def reference(overload: Overload):
    """ATen's operators on copies of the inputs, so that it does not matter what is overwritten afterwards."""

    def call(*tensors):
        args, out = _split(overload, tensors)
        if not overload.mutates:
            return decompose(overload, tuple(args))
        result = decompose(overload, tuple(v.clone() if isinstance(v, Tensor) else v for v in args))
        if overload.is_out:
            return torch.mul(result, 1, out=out["out"])
        if torch._is_functional_tensor(args[0]) and peek_interpreter_stack() is None:  # "functional wrappers"
            # PyTorch adds to an expanded one's memory what each write changes: two are not the same as one.
            return args[0].copy_(result)
        return args[0].fill_(-0.0).add_(result)  # as copy_, and with a derivative also where that has none

    return call


def torchs(overload: Overload):
    """An operator of PyTorch's own with as many tensors: its strides, and what it refuses, but not its values."""
    counterparts = {
        "add": torch.add,
        "mul": torch.mul,
        "scale": lambda x, _, **out: torch.neg(x, **out),
        "muladd": lambda a, b, c, **out: torch.mul(a, b, **out).add_(c),
        "muladd_": lambda a, b, c: a.mul_(b).add_(c),
        "fma": torch.addcmul,
        "muladd_backward": lambda grad, a, b: (torch.addcmul(grad, a, b), torch.addcmul(grad, a, b)),
    }

    def call(*tensors):
        args, out = _split(overload, tensors)
        return counterparts[overload.name.removesuffix(".out")](*args, **out)

    return call


def documented(overload: Overload):
    """The reference, but for what docs/support.md and the public functions' docstrings say is refused.

    Raises:
        DocumentedError: a target of another shape or dtype, or that overlaps itself, also where a transformation would
            take it apart; an out= that would be resized over an input, and out= under a transformation.
    """

    def call(*tensors):
        args, out = _split(overload, tensors)
        inputs = overload.tensors(tuple(args))
        if overload.mutates:
            target = overload.mutated(tuple(args), out)
            shape = torch.broadcast_shapes(*(tensor.shape for tensor in inputs))
            if not has_shape(target, shape) and not (overload.is_out and target.numel() == 0):
                raise DocumentedError("the target has another shape")
            if target.dtype is not result_dtype(inputs):
                raise DocumentedError("the target has another dtype")
            if any(stride == 0 and size > 1 for stride, size in zip(target.stride(), target.shape, strict=True)):
                raise DocumentedError("elements of the target share one place")
        if overload.is_out:
            if not all(map(is_plain, tensors)) or torch.autograd.forward_ad._current_level >= 0:
                raise DocumentedError("out under a transformation")
            if target.numel() == 0 and any(torch._C._is_alias_of(target, tensor) for tensor in inputs):
                raise DocumentedError("out would be resized over an input")
        return reference(overload)(*tensors)

    return call
