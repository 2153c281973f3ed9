"""The kernel at the Autograd key decides which derivative rules apply to a call; :mod:`.native_autograd` has it in C++.

1. Under a ``torch.func`` transform, or when an input carries a forward-mode tangent, the call decomposes into ATen
   operators, and ATen's own rules apply: reverse, forward, any order, any composition. So does an in-place call that
   torch.compile records gradients of.
2. Otherwise, when an input requires grad, an ``autograd.Function`` (:mod:`.autograd_function`) runs the backend's
   kernel and, backwards, the declared derivatives, or the reference's.
3. Otherwise the backend's kernel runs and nothing is recorded.

``torch.library.register_autograd`` covers only the second: under the first it fails or, in forward mode, silently
returns wrong tangents (docs/decisions/0011-native-autograd.md).
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._torch import private
from . import autocast
from .arguments import check_tensors
from .autograd_function import Call, function_of
from .decompositions import decompose
from .derivatives import Derivatives
from .derivatives.plan import Plan, plan_of
from .kernel_errors import raise_if_out_of_memory
from .overlap import may_share_memory
from .overload import Overload, as_tuple, tensors_in
from .tensor_iterator import check_output, overwrite


def autograd_kernel(derivatives: Derivatives) -> Callable[..., Any]:
    """The kernel for one overload; it is called with the dispatch key set in front."""
    return _AutogradKernel(derivatives).call


class _AutogradKernel:
    """Decides which derivative rules apply to a call, as the class of that name in ``csrc/autograd/kernel.cpp``."""

    def __init__(self, derivatives: Derivatives) -> None:
        self._derivatives = derivatives
        self._overload = derivatives.overload
        self._redispatch: Callable[..., Any] | None = None
        self._positions: tuple[int, ...] = ()  # of the positional arguments that are tensors
        self._count = -1  # more arguments than that a call must have for the quick look at those

    # Nothing is recorded most of the time, and this is a good part of what a small call takes: no helpers.
    def call(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        redispatch = self._redispatch or self._prepared()
        try:
            if len(args) > self._count and not (private.functorch_is_active() or private.forward_ad_is_active()):
                for i in self._positions:
                    if args[i].requires_grad:
                        break
                else:
                    if not kwargs:
                        return redispatch(private.after_autograd(keyset), *args)
                    if not private.any_requires_grad(*kwargs.values()):
                        return redispatch(private.after_autograd(keyset), *args, **kwargs)
            return self._decided(keyset, args, kwargs)
        except RuntimeError as error:
            check_tensors(self._overload, args, kwargs)
            raise_if_out_of_memory(error)
            raise
        except AttributeError:
            check_tensors(self._overload, args, kwargs)
            raise

    def _prepared(self) -> Callable[..., Any]:
        """What the quick look needs. Made in the first call: for all overloads at once it would delay the import."""
        overload = self._overload
        self._positions = tuple([i for i in overload.tensor_positions if i < len(overload.arguments)])
        is_simple = overload.has_plain_tensors_only and not overload.constants
        self._count = max(self._positions, default=-1) if is_simple else 1 << 30
        self._redispatch = private.redispatch(overload.op)  # last: another thread looks whether it is there
        return self._redispatch

    def _decided(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call, where the quick look does not tell that nothing is recorded."""
        overload = self._overload
        values = overload.bind(args, kwargs)
        if overload.constants:  # for the kernel, the reference and the formulas
            values = overload.as_constants(values)
            args, kwargs = overload.unbind(values)
        if overload.has_plain_tensors_only:
            tensors = [values[i] for i in overload.tensor_positions]
        else:
            tensors = overload.all_tensors(values)
        has_tangent = private.forward_ad_is_active() and _has_tangent(tensors)
        requires_grad = torch.is_grad_enabled() and private.any_requires_grad(*tensors)
        if private.functorch_is_active() or has_tangent:
            if requires_grad or has_tangent:
                _check_is_differentiable(overload)
            if overload.mutates and not (overload.is_in_place or overload.is_out):
                return _below_autograd(overload, keyset, args, kwargs)
            return decomposed(overload, values)
        if not requires_grad:
            return _below_autograd(overload, keyset, args, kwargs)
        if overload.training is not None:
            return trained(overload, values)
        _check_is_recorded(overload)
        if overload.is_in_place and private.compiler_is_functionalizing():
            # An autograd.Function's result that lies over an input is taken for a view that the function has made:
            # the compiled program would return another tensor than the one that it overwrites.
            return decomposed(overload, values)
        return self._function.apply(self._recorded(keyset, args, kwargs, values), *tensors)

    def _recorded(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: tuple[Any, ...]) -> Call:
        """The call with what a node keeps of it, checked before the kernel writes."""
        overload, derivatives = self._overload, self._derivatives
        needed = _needed(overload, values)
        plan = plan_of(derivatives, needed, overload.is_in_place and bool(derivatives.uncovered))
        kept = [values[i] for i in plan.tensors]
        if overload.is_in_place:
            _check_may_be_overwritten(overload, values[0])
            kept = _as_before_writing(values[0], kept)
            _check_may_be_kept(overload, plan, kept)
        return Call(keyset, args, kwargs, values, needed, plan, kept)

    @cached_property
    def _function(self) -> type[torch.autograd.Function]:
        return function_of(self._derivatives)  # not before somebody differentiates


def trained(overload: Overload, values: tuple[Any, ...]) -> Any:
    """A call of the operator for training, which returns more, in place of this one."""
    training = overload.training
    assert training is not None
    with private.checkpoint_policies_see(overload.op, training.op):
        results = as_tuple(training.call(training.op, values))
    results = results[: len(overload.schema.returns)]
    return results if len(results) > 1 else results[0]


def _needed(overload: Overload, values: tuple[Any, ...]) -> tuple[bool, ...]:
    """For each argument whether it is, or contains, a tensor that requires grad."""
    if overload.has_plain_tensors_only:
        return tuple([isinstance(value, Tensor) and value.requires_grad for value in values])
    return tuple([any(tensor.requires_grad for tensor in tensors_in((value,))) for value in values])


def _check_is_recorded(overload: Overload) -> None:
    """Refuse what writes, where a gradient would be recorded; in-place variants have one."""
    if overload.is_out:
        raise RuntimeError(
            f"{overload.name}: functions with out= do not support automatic differentiation, but one of the "
            "arguments requires grad. Leave out= away, or call it under torch.no_grad()"
        )
    if overload.mutates and not overload.is_in_place:
        written = ", ".join(f"'{overload.names[i]}'" for i in overload.written)
        raise RuntimeError(
            f"{overload.name}: it writes into {written}, which cannot be differentiated, but one of the arguments "
            "requires grad. Call it under torch.no_grad(), or with .detach() of them"
        )


def _check_is_differentiable(overload: Overload) -> None:
    """Refuse, under a transform, what has no derivative."""
    if overload.mutates and not (overload.is_in_place or overload.is_out):
        _check_is_recorded(overload)
    if overload.operator.derivatives is None:
        raise RuntimeError(f"{overload.name}: is not differentiable; call it with .detach() of its arguments")


def _below_autograd(overload: Overload, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with private.below_autograd():
        return overload.op.redispatch(private.after_autograd(keyset), *args, **kwargs)


def _has_tangent(tensors: list[Tensor]) -> bool:
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def decomposed(overload: Overload, values: tuple[Any, ...]) -> Any:
    """The call in ATen operators, with the overwriting that an in-place variant does."""
    if overload.is_out:
        raise RuntimeError(
            f"{overload.name}: out= cannot be used under torch.func transforms or forward-mode differentiation; use "
            "the functional variant"
        )
    if not overload.is_in_place:
        if private.functorch_is_active():
            return autocast.call_as_cast(overload, values, lambda given: decompose(overload, given))
        return decompose(overload, values)
    target = values[0]
    check_tensors(overload, values)
    result = decompose(overload, tuple(_as_before_writing(target, values)))
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


def _check_may_be_kept(overload: Overload, plan: Plan, kept: list[Tensor]) -> None:
    """PyTorch would find this out after the kernel has written."""
    for i, value in zip(plan.tensors, kept, strict=True):
        if value.is_inference():
            raise RuntimeError(
                f"{overload.name}: '{overload.names[i]}' is an inference tensor, which cannot be kept for a "
                "gradient; clone it outside of torch.inference_mode()"
            )
