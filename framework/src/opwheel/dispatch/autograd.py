"""The kernel at the Autograd key decides which derivative rules apply to a call; :mod:`.native_autograd` has it in C++.

1. Under a ``torch.func`` transform, or when an input carries a forward-mode tangent, the call decomposes into ATen
   operators, and ATen's own rules apply: reverse, forward, any order, any composition. So does an in-place call that
   torch.compile records gradients of.
2. Otherwise, when an input requires grad, an ``autograd.Function`` runs the backend's kernel and, backwards, the
   declared derivatives, or the reference's.
3. Otherwise the backend's kernel runs and nothing is recorded.

``torch.library.register_autograd`` covers only the second: under the first it fails or, in forward mode, silently
returns wrong tangents (docs/decisions/0011-native-autograd.md).
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._torch import private
from . import autocast
from .arguments import check_tensors
from .decompositions import decompose
from .derivatives import Derivatives, Plan
from .kernel_errors import raise_if_out_of_memory
from .overlap import may_share_memory
from .overload import Overload, as_tuple, tensors_in
from .rules import Elementwise
from .tensor_iterator import check_output, overwrite


def autograd_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for one overload; it is called with the dispatch key set in front."""
    derivatives = Derivatives(overload)
    derivative = cache(lambda: _autograd_function(overload, derivatives))  # not before somebody differentiates

    redispatch: Callable[..., Any] | None = None
    positions: tuple[int, ...] = ()  # of the positional arguments that are tensors
    count = -1  # more arguments than that a call must have for the quick look at `positions`

    # Nothing is recorded most of the time, and this is a good part of what a small call takes: no helpers.
    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal redispatch, positions, count
        if redispatch is None:  # the first call: for all overloads at once it would delay the import
            positions = tuple([i for i in overload.tensor_positions if i < len(overload.arguments)])
            count = max(positions, default=-1) if overload.has_plain_tensors_only else 1 << 30
            redispatch = private.redispatch(overload.op)  # last: another thread goes by it
        try:
            if len(args) > count and not (private.functorch_is_active() or private.forward_ad_is_active()):
                for i in positions:
                    if args[i].requires_grad:
                        break
                else:
                    if not kwargs:
                        return redispatch(private.after_autograd(keyset), *args)
                    if not private.any_requires_grad(*kwargs.values()):
                        return redispatch(private.after_autograd(keyset), *args, **kwargs)
            return differentiable(keyset, args, kwargs)
        except RuntimeError as error:
            check_tensors(overload, args, kwargs)
            raise_if_out_of_memory(error)
            raise
        except AttributeError:
            check_tensors(overload, args, kwargs)
            raise

    def differentiable(keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = overload.bind(args, kwargs)
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
        if requires_grad and overload.training is not None:
            with private.checkpoint_policies_see(overload.op, overload.training.op):
                results = as_tuple(overload.training.call(overload.training.op, values))
            results = results[: len(overload.schema.returns)]
            return results if len(results) > 1 else results[0]
        if requires_grad:
            _check_is_recorded(overload)
            if overload.is_in_place and private.compiler_is_functionalizing():
                # An autograd.Function's result that lies over an input is taken for a view that the function has made:
                # the compiled program would return another tensor than the one that it overwrites.
                return decomposed(overload, values)
            needed = _needed(overload, values)
            plan = derivatives.plan(needed, overload.is_in_place and bool(derivatives.uncovered))
            kept = [values[i] for i in plan.tensors]
            if overload.is_in_place:
                _check_may_be_overwritten(overload, values[0])
                kept = _as_before_writing(values[0], kept)
                _check_may_be_kept(overload, plan, kept)
            return derivative().apply(_Call(keyset, args, kwargs, values, needed, plan, kept), *tensors)
        return _below_autograd(overload, keyset, args, kwargs)

    return kernel


class _Call(NamedTuple):
    """What is recorded, and with what."""

    keyset: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: tuple[Any, ...]
    needed: tuple[bool, ...]
    plan: Plan
    kept: list[Tensor]  # the arguments that plan.tensors names


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
            values = autocast.as_cast(overload, values)
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


def _autograd_function(overload: Overload, derivatives: Derivatives) -> type[torch.autograd.Function]:
    several = len(overload.schema.returns) > 1
    is_in_place = overload.is_in_place
    has_plain_tensors_only = overload.has_plain_tensors_only
    tensor_positions = overload.tensor_positions
    # Those of element-wise operators are floating-point numbers.
    looks_at_results = bool(derivatives.fixed or derivatives.uncovered or not isinstance(overload.rule, Elementwise))
    redispatch = private.redispatch(overload.op)

    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        if overload.operator.derivatives is None:
            raise RuntimeError(
                f"{overload.name}: is not differentiable, but a gradient has arrived at its result; .detach() the "
                "result, or call it under torch.no_grad()"
            )
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        plan: Plan = ctx.plan
        saved = ctx.saved_tensors
        others = ctx.others if has_plain_tensors_only else [_unpacked(value, saved) for value in ctx.others]
        by_reference = plan.without_formula or any(grads[i] is not None for i in plan.uncovered)
        if by_reference or (plan.is_inexact_again and torch.is_grad_enabled()):
            from .derivatives.through_reference import gradients_through_reference  # seldom needed

            positions = (*plan.tensors, *plan.others)
            kept = dict(zip(positions, (*saved[: len(plan.tensors)], *others), strict=True))
            values = tuple(kept[i] for i in range(len(kept)))
            return (None, *gradients_through_reference(overload, values, ctx.needs_input_grad[1:], grads))
        known = saved[: len(plan.tensors) + len(plan.results)]
        given = list(grads)
        for i, zeros in ctx.zeros.items():
            given[i] = zeros() if grads[i] is None else grads[i]
        gradients = plan.gradients((*given, *known, *others), len(overload.names))
        # The engine sums each gradient to its input's shape and casts it to its dtype.
        if has_plain_tensors_only:
            return (None, *[gradients[i] for i in tensor_positions])
        return (None, *[gradients[i] if k is None or gradients[i] is None else gradients[i][k] for i, k in ctx.places])

    class Derivative(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, call: _Call, *tensors: Tensor) -> Any:
            # The overwritten tensor must be the first one: autograd takes the first gradient for it (CopySlices).
            plan, kept, values = call.plan, call.kept, call.values
            result = redispatch(private.after_autograd(call.keyset), *call.args, **call.kwargs)
            if is_in_place:
                result = tensors[0]
                ctx.mark_dirty(result)
            else:
                _check_results_are_new(overload, tensors, as_tuple(result))
                if looks_at_results:
                    fixed, is_uncovered = _sorted_out(overload, derivatives, as_tuple(result))
                    ctx.mark_non_differentiable(*fixed)
                    if is_uncovered:
                        plan = derivatives.plan(call.needed, True)
                        kept = [values[i] for i in plan.tensors]
            ctx.plan = plan
            kept += [as_tuple(result)[i] for i in plan.results]
            if has_plain_tensors_only:
                ctx.others = [values[i] for i in plan.others]
            else:
                ctx.others = [_packed(values[i], kept) for i in plan.others]
                ctx.places = [place for i in tensor_positions for place in _places(i, values[i])]
            ctx.save_for_backward(*kept)
            ctx.set_materialize_grads(False)  # zeros for what no formula names, too
            ctx.zeros = {i: _zeros_like(result[i]) for i in plan.named} if several else {}
            return result

    # What a random operator has drawn does not depend on its inputs, but its formulas cannot say more than once how.
    backward_once = torch.autograd.function.once_differentiable(backward) if overload.is_random else backward
    Derivative.backward = staticmethod(backward_once)  # type: ignore[method-assign,assignment]
    return Derivative


def _check_results_are_new(overload: Overload, arguments: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Refuse a gradient for a tensor that is another one as well: it would be lost, or be that of the wrong tensor."""
    for i, result in enumerate(results):
        for others, whose in ((arguments, "an argument; it"), (results[:i], "another result; each")):
            if any(private.has_storage(one) and private.is_alias(result, one) for one in others):
                raise RuntimeError(
                    f"{overload.name}: the kernel returned '{overload.result_names[i]}' in the memory of {whose} must "
                    "be a new tensor"
                )


def _sorted_out(overload: Overload, derivatives: Derivatives, results: tuple[Tensor, ...]) -> tuple[list[Tensor], bool]:
    """The results that have no gradient, and whether another one has a gradient that no formula names.

    Raises:
        RuntimeError: there is such a gradient, and the operator is random: it would be lost.
    """
    fixed, is_uncovered = [], False
    for i, result in enumerate(results):
        if i in derivatives.fixed or not (result.is_floating_point() or result.is_complex()):
            fixed.append(result)
        elif i in derivatives.uncovered:
            is_uncovered = True
            if overload.is_random:
                raise RuntimeError(
                    f"{overload.name}: no formula names the gradient of the result '{overload.result_names[i]}', and "
                    f"the reference would draw again; name it (grads[{i}]), or the result in not_differentiable"
                )
    return fixed, is_uncovered


def _zeros_like(result: Tensor) -> Callable[[], Tensor]:
    """What makes a gradient of zeros, without keeping the result.

    That of a subclass, whose zeros may be more than a shape says (DTensor), is kept.
    """
    if type(result) is not Tensor:
        return partial(torch.zeros_like, result.detach())
    return partial(torch.zeros, result.shape, dtype=result.dtype, device=result.device)


class _Slot(NamedTuple):
    """In the place of a kept tensor."""

    position: int


def _packed(value: Any, kept: list[Tensor]) -> Any:
    """A value whose tensors are moved to ``kept``."""
    if isinstance(value, Tensor):
        kept.append(value)
        return _Slot(len(kept) - 1)
    return [_packed(one, kept) for one in value] if isinstance(value, list) else value


def _unpacked(value: Any, kept: Sequence[Tensor]) -> Any:
    if isinstance(value, _Slot):
        return kept[value.position]
    return [_unpacked(one, kept) for one in value] if isinstance(value, list) else value


def _places(position: int, value: Any) -> list[tuple[int, int | None]]:
    """For each tensor of an argument its position, and its index in the argument if that is a list."""
    if isinstance(value, (list, tuple)):
        return [(position, index) for index, one in enumerate(value) if one is not None]
    return [(position, None)] if isinstance(value, Tensor) else []
