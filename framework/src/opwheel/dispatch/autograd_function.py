"""The node in the autograd graph that calls are recorded by: keeps what the formulas name, and computes them.

:mod:`.autograd` decides which calls are recorded. ``csrc/autograd/node.cpp`` has the same in C++.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._torch import private
from .derivatives import Derivatives
from .derivatives.plan import Plan, plan_of
from .overload import Overload, as_tuple
from .rules import Elementwise


class Call(NamedTuple):
    """What is recorded, and with what."""

    keyset: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: tuple[Any, ...]
    needed: tuple[bool, ...]
    plan: Plan
    kept: list[Tensor]  # the arguments that plan.tensors names


def function_of(derivatives: Derivatives) -> type[torch.autograd.Function]:
    """What records calls of one overload: ``apply(call, *tensors)`` with all tensors among its arguments.

    The overwritten tensor must be the first one: autograd takes the first gradient for it (CopySlices). Each overload
    has a class of its own, because compiled autograd tells functions apart by their classes.
    """
    node = _Node(derivatives)

    class Derivative(torch.autograd.Function):
        forward = staticmethod(node.forward)
        # What a random operator has drawn does not depend on its inputs, but its formulas do not say so.
        backward = staticmethod(  # type: ignore[assignment]
            once_differentiable(node.backward) if derivatives.overload.is_random else node.backward
        )

    return Derivative


class _Node:
    """The calls of one overload. What belongs to one of them is in its ``ctx``."""

    def __init__(self, derivatives: Derivatives) -> None:
        overload = derivatives.overload
        self._derivatives = derivatives
        self._overload = overload
        self._redispatch = private.redispatch(overload.op)
        self._is_in_place = overload.is_in_place
        self._has_plain_tensors_only = overload.has_plain_tensors_only
        self._has_several_results = len(overload.schema.returns) > 1
        # Those of element-wise operators are floating-point numbers.
        self._looks_at_results = bool(
            derivatives.fixed or derivatives.uncovered or not isinstance(overload.rule, Elementwise)
        )

    def forward(self, ctx: Any, call: Call, *tensors: Tensor) -> Any:
        """Run the kernel, and keep what the formulas for the gradients that are needed name."""
        plan, kept = call.plan, call.kept
        result = self._redispatch(private.after_autograd(call.keyset), *call.args, **call.kwargs)
        if self._is_in_place:
            result = tensors[0]
            ctx.mark_dirty(result)
        else:
            _check_results_are_new(self._overload, tensors, as_tuple(result))
            if self._looks_at_results and self._has_uncovered(ctx, as_tuple(result)):
                plan = plan_of(self._derivatives, call.needed, True)
                kept = [call.values[i] for i in plan.tensors]
        self._keep(ctx, plan, kept, call.values, as_tuple(result))
        return result

    def backward(self, ctx: Any, *grads: Tensor | None) -> Any:
        """The gradients of the tensors; none of the call, which is the function's first argument."""
        if self._overload.operator.derivatives is None:
            raise RuntimeError(
                f"{self._overload.name}: is not differentiable, but a gradient has arrived at its result; .detach() "
                "the result, or call it under torch.no_grad()"
            )
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        plan: Plan = ctx.plan
        saved = ctx.saved_tensors
        others = ctx.others if self._has_plain_tensors_only else [_unpacked(value, saved) for value in ctx.others]
        by_reference = plan.without_formula or any(grads[i] is not None for i in plan.uncovered)
        if by_reference or (plan.is_inexact_again and torch.is_grad_enabled()):
            return (None, *self._through_reference(ctx, saved, others, grads))
        return (None, *self._through_formulas(ctx, saved, others, grads))

    def _has_uncovered(self, ctx: Any, results: tuple[Tensor, ...]) -> bool:
        """Whether a result has a gradient that no formula names; marks those that have none.

        Raises:
            RuntimeError: there is such a gradient, and the operator is random: it would be lost.
        """
        overload, derivatives = self._overload, self._derivatives
        fixed, is_uncovered = [], False
        for i, result in enumerate(results):
            if i in derivatives.fixed or not (result.is_floating_point() or result.is_complex()):
                fixed.append(result)
            elif i in derivatives.uncovered:
                is_uncovered = True
                if overload.is_random:
                    raise RuntimeError(
                        f"{overload.name}: no formula names the gradient of the result '{overload.result_names[i]}', "
                        f"and the reference would draw again; name it (grads[{i}]), or the result in not_differentiable"
                    )
        ctx.mark_non_differentiable(*fixed)
        return is_uncovered

    def _keep(
        self, ctx: Any, plan: Plan, kept: list[Tensor], values: tuple[Any, ...], results: tuple[Tensor, ...]
    ) -> None:
        """Keep what the plan names, for :meth:`backward`: ``kept`` are its tensors."""
        kept += [results[i] for i in plan.results]
        if self._has_plain_tensors_only:
            ctx.others = [values[i] for i in plan.others]
        else:
            ctx.others = [_packed(values[i], kept) for i in plan.others]
            ctx.places = [place for i in self._overload.tensor_positions for place in _places(i, values[i])]
        ctx.plan = plan
        ctx.real = {i for i, one in enumerate(self._overload.all_tensors(values)) if not one.is_complex()}
        ctx.properties = [one.of((results if one.is_of_result else values)[one.position]) for one in plan.properties]
        ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)  # zeros for what no formula names, too
        ctx.zeros = {i: _zeros_like(results[i]) for i in plan.named} if self._has_several_results else {}

    def _through_reference(
        self, ctx: Any, saved: Sequence[Tensor], others: Sequence[Any], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        from .derivatives.through_reference import gradients_through_reference  # seldom needed

        plan: Plan = ctx.plan
        positions = (*plan.tensors, *plan.others)
        kept = dict(zip(positions, (*saved[: len(plan.tensors)], *others), strict=True))
        values = tuple(kept[i] for i in range(len(kept)))
        return gradients_through_reference(self._overload, values, ctx.needs_input_grad[1:], grads)

    def _through_formulas(
        self, ctx: Any, saved: Sequence[Tensor], others: Sequence[Any], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """The engine sums each of them to its input's shape and casts it to its dtype."""
        plan: Plan = ctx.plan
        known = saved[: len(plan.tensors) + len(plan.results)]
        given = list(grads)
        for i, zeros in ctx.zeros.items():
            given[i] = zeros() if grads[i] is None else grads[i]
        gradients = plan.gradients((*given, *known, *others, *ctx.properties), len(self._overload.names))
        if self._has_plain_tensors_only:
            found = [gradients[i] for i in self._overload.tensor_positions]
        else:
            found = [gradients[i] if k is None or gradients[i] is None else gradients[i][k] for i, k in ctx.places]
        return [_as_real(one) if i in ctx.real else one for i, one in enumerate(found)]


def _check_results_are_new(overload: Overload, arguments: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Refuse a gradient for a tensor that is another one as well: it would be lost, or be that of the wrong tensor."""
    for i, result in enumerate(results):
        for others, whose in ((arguments, "an argument; it"), (results[:i], "another result; each")):
            if any(private.has_storage(one) and private.is_alias(result, one) for one in others):
                raise RuntimeError(
                    f"{overload.name}: the kernel returned '{overload.result_names[i]}' in the memory of {whose} must "
                    "be a new tensor"
                )


def _as_real(gradient: Tensor | None) -> Tensor | None:
    """The gradient of a real tensor, where the formula has computed with complex ones."""
    return torch.real(gradient) if gradient is not None and gradient.is_complex() else gradient


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
