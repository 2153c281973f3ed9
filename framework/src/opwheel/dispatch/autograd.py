"""The kernel at the Autograd key decides which derivative rules apply to a call.

1. Under a ``torch.func`` transform, or when an input carries a forward-mode tangent, the call decomposes into ATen
   operators, and ATen's own rules apply: reverse, forward, any order, any composition. So does an in-place call that
   torch.compile records gradients of.
2. Otherwise, when an input requires grad, an ``autograd.Function`` runs the backend's kernel and, backwards, the
   declared gradients.
3. Otherwise the backend's kernel runs and nothing is recorded.

``torch.library.register_autograd`` covers only the second: under the first it fails or, in forward mode, silently
returns wrong tangents (docs/decisions/0003-autograd-key.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _torch_private as private
from .elementwise import check_inputs, check_output, check_tensors, decompose, overwrite
from .gradients import GradientPlan, Gradients
from .kernel_errors import raise_if_out_of_memory
from .overlap import may_share_memory
from .overload import Overload


def autograd_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for one overload; it is called with the dispatch key set in front."""
    gradients = Gradients(overload)
    derivative = cache(lambda: _autograd_function(overload))  # not before somebody differentiates

    redispatch: Callable[..., Any] | None = None
    positions: list[int] = []

    # Nothing is recorded most of the time, and this is a good part of what a small call takes: no helpers.
    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal redispatch, positions
        if redispatch is None:  # the first call: for all overloads at once it would delay the import
            positions = [i for i, name in enumerate(overload.arguments) if name in overload.tensor_arguments]
            redispatch = private.redispatch(overload.op)  # last: another thread goes by it
        try:
            if not (private.functorch_is_active() or private.forward_ad_is_active() or kwargs):
                for i in positions:
                    if args[i].requires_grad:
                        break
                else:
                    return redispatch(keyset & private.after_autograd_keys, *args)
            return differentiable(keyset, args, kwargs)
        except RuntimeError as error:
            check_tensors(overload, args, kwargs)
            raise_if_out_of_memory(error)
            raise
        except AttributeError:
            check_tensors(overload, args, kwargs)
            raise

    def differentiable(keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [*overload.tensors(args), *kwargs.values()]
        if private.functorch_is_active() or (private.forward_ad_is_active() and _has_tangent(tensors)):
            return _decomposed(overload, args)
        if torch.is_grad_enabled() and private.any_requires_grad(*tensors):
            if overload.is_out:
                raise RuntimeError(
                    f"{overload.name}: functions with out= do not support automatic differentiation, but one of the "
                    "arguments requires grad. Leave out= away, or call it under torch.no_grad()"
                )
            if overload.is_in_place and private.compiler_is_functionalizing():
                # An autograd.Function's result that lies over an input is taken for a view that the function has made:
                # the compiled program would return another tensor than the one that it overwrites.
                return _decomposed(overload, args)
            plan = gradients.plan(tuple([isinstance(value, Tensor) and value.requires_grad for value in args]))
            kept = [args[i] for i in plan.tensors]
            if overload.is_in_place:
                _check_may_be_overwritten(overload, args[0])
                kept = _as_before_writing(args[0], kept)
                _check_may_be_kept(overload, plan, kept)
            return derivative().apply((keyset, plan, kept), *args)
        return _below_autograd(overload, keyset, args, kwargs)

    return kernel


def _below_autograd(overload: Overload, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with private.below_autograd():
        return overload.op.redispatch(keyset & private.after_autograd_keys, *args, **kwargs)


def _has_tangent(tensors: list[Tensor]) -> bool:
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def _decomposed(overload: Overload, args: tuple[Any, ...]) -> Any:
    if overload.is_out:
        raise RuntimeError(
            f"{overload.name}: out= cannot be used under torch.func transforms or forward-mode differentiation; use "
            "the functional variant"
        )
    check_inputs(overload, args)
    if not overload.is_in_place:
        return decompose(overload, args)
    target = args[0]
    result = decompose(overload, (*_as_before_writing(target, args),))
    check_output(overload, target, result.shape, result.dtype, result.device)
    if torch.is_grad_enabled() and result.requires_grad:
        _check_may_be_overwritten(overload, target)
    return overwrite(overload, target, result)


def _as_before_writing(target: Tensor, values: Sequence[Any]) -> list[Any]:
    """The values with a copy for each tensor that would change when ``target`` is overwritten.

    A formula needs them as they were. The copies are differentiable, for second derivatives.
    """
    copies = {id(v): v.clone() for v in values if isinstance(v, Tensor) and may_share_memory(target, v)}
    return [copies.get(id(value), value) for value in values]


def _check_may_be_overwritten(overload: Overload, target: Tensor) -> None:
    """PyTorch finds these out after the kernel has written; by then the data is gone."""
    base = private.base_of(target)
    if target.requires_grad and (target.is_leaf or (base is not None and base.is_leaf)):
        what = "a leaf variable" if target.is_leaf else "a view of a leaf variable"
        raise RuntimeError(
            f"{overload.name}: {what} that requires grad is being used in an in-place operation; use the functional "
            "variant, or torch.no_grad()"
        )
    if base is not None and not private.view_may_be_modified(target):
        raise RuntimeError(
            f"{overload.name}: '{overload.target}' is a view that does not allow in-place modification (one of "
            "several views from one call, or made under no_grad or in inference mode); clone it first"
        )


def _check_may_be_kept(overload: Overload, plan: GradientPlan, kept: list[Tensor]) -> None:
    """PyTorch would find this out after the kernel has written."""
    for i, value in zip(plan.tensors, kept, strict=True):
        if value.is_inference():
            raise RuntimeError(
                f"{overload.name}: '{overload.arguments[i]}' is an inference tensor, which cannot be kept for a "
                "gradient; clone it outside of torch.inference_mode()"
            )


def _autograd_function(overload: Overload) -> type[torch.autograd.Function]:
    count = len(overload.arguments)
    several = len(overload.schema.returns) > 1
    is_in_place = overload.is_in_place
    redispatch = private.redispatch(overload.op)

    class Derivative(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, recorded: tuple[Any, GradientPlan, list[Tensor]], *args: Any) -> Any:
            # The overwritten tensor must be the first one: autograd takes the first gradient for it (CopySlices).
            keyset, plan, kept = recorded
            ctx.plan = plan
            result = redispatch(keyset & private.after_autograd_keys, *args)
            if is_in_place:
                result = args[0]
                ctx.mark_dirty(result)
            ctx.save_for_backward(*kept)
            ctx.numbers = [args[i] for i in plan.numbers]
            if not several:
                ctx.set_materialize_grads(False)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            if grads[0] is None:
                return (None,) * (count + 1)
            plan: GradientPlan = ctx.plan
            # The engine sums each gradient to its input's shape and casts it to its dtype.
            return (None, *plan.gradients((*grads, *ctx.saved_tensors, *ctx.numbers), count))

    Derivative.__name__ = Derivative.__qualname__ = f"{overload.name.replace('.', '_')}_derivative"
    return Derivative
