"""Checks of derivatives: reverse mode of both orders, forward mode, torch.func; against the reference's in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from opwheel.dispatch.overload import Overload, as_tuple, tensors_in
from torch import Tensor

from .agreement import (
    agree,
    check_raises,
    coarseness_of_derivatives,
    constant,
    differentiable,
    differentiable_reference,
    gradients_of,
    has_derivatives,
    has_fractions,
    real_parts,
    run_kernel,
    run_reference,
)
from .applicable import of_the_reference
from .cases import Samples, holds_numbers, wide_dtype


def first_derivatives(overload: Overload, samples: Samples) -> None:
    """Gradients are those of the reference, whichever tensors require them.

    Without derivatives the call works, and going backward raises.
    """
    _compare_gradients(overload, samples, order=1)
    _check_constants(overload, samples)
    _compare_gradients_of_each_result(overload, samples, order=1)
    _compare_gradients_of_some(overload, samples)


def second_derivatives(overload: Overload, samples: Samples) -> None:
    """Gradients of gradients are those of the reference, whichever of the first were asked for."""
    if not overload.is_random:
        _compare_gradients(overload, samples, order=2)
        _compare_gradients_of_each_result(overload, samples, order=2)
        _compare_gradients_of_one(overload, samples)


def _compare_gradients(overload: Overload, samples: Samples, order: int) -> None:
    given = samples.values(requires_grad=True)
    inputs = differentiable(overload, given)
    if not inputs or overload.mutates:
        return
    if not has_derivatives(overload):
        results = [r for r in run_kernel(overload, given) if r.requires_grad]
        for result in results:
            check_raises(RuntimeError, "not differentiable", real_parts(result).sum().backward)
        return
    if overload.is_random:
        for gradient in gradients_of(run_kernel(overload, given), inputs, 1):
            assert gradient is not None, "a random operator's gradient is missing"
        return
    other = samples.values(requires_grad=True)
    others = differentiable(overload, other)
    what = f"{['first', 'second'][order - 1]} derivatives"
    with of_the_reference(what):
        want = gradients_of(differentiable_reference(overload, other), others, order)
    got = gradients_of(run_kernel(overload, given), inputs, order)
    _agree(overload, f"{what} by tensor", inputs, got, want)


def _compare_gradients_of_each_result(overload: Overload, samples: Samples, order: int) -> None:
    """Gradients of one result alone: no formula sees what arrives at others, and the reference is not in its place."""
    count = len(overload.result_names)
    if count < 2 or not has_derivatives(overload) or overload.mutates or overload.is_random:
        return
    for i in range(count):
        given, other = samples.values(requires_grad=True), samples.values(requires_grad=True)
        inputs, others = differentiable(overload, given), differentiable(overload, other)
        what = f"derivatives of '{overload.result_names[i]}' alone"
        with of_the_reference(what):
            want = gradients_of([differentiable_reference(overload, other)[i]], others, order)
        got = gradients_of([run_kernel(overload, given)[i]], inputs, order)
        _agree(overload, f"{what} by tensor", inputs, got, want)


def _compare_gradients_of_one(overload: Overload, samples: Samples) -> None:
    """Second derivatives, where the first is that of one tensor alone: others may still be what it depends on."""
    count = len(differentiable(overload, samples.values(requires_grad=True)))
    if count < 2 or not has_derivatives(overload) or overload.mutates:
        return
    for i in range(count):
        given, other = samples.values(requires_grad=True), samples.values(requires_grad=True)
        inputs, others = differentiable(overload, given), differentiable(overload, other)
        what = f"derivatives by tensor, of the gradient of {_name(overload, given, inputs[i])}"
        with of_the_reference(what):
            want = gradients_of(differentiable_reference(overload, other), others, 2, [others[i]])
        got = gradients_of(run_kernel(overload, given), inputs, 2, [inputs[i]])
        _agree(overload, what, inputs, got, want)


def _check_constants(overload: Overload, samples: Samples) -> None:
    """Arguments that are declared to have no gradient get none, and nothing is recorded for them alone."""
    given = samples.values(requires_grad=True)
    constants, inputs = constant(overload, given), differentiable(overload, given)
    if not constants or not has_derivatives(overload):
        return
    recorded = [result for result in run_kernel(overload, given) if result.requires_grad]
    for gradient in gradients_of(recorded, constants, 1):
        assert gradient is None, "an argument in not_differentiable has a gradient"
    for tensor in inputs:
        tensor.requires_grad_(False)
    for result in run_kernel(overload, given):
        assert not result.requires_grad, "a result has a gradient where only arguments in not_differentiable do"


def _agree(
    overload: Overload, what: str, inputs: list[Tensor], got: list[Tensor | None], want: list[Tensor | None]
) -> None:
    """Compare gradients, of which None is zero."""
    zeros = [torch.zeros_like(x) for x in inputs]
    agree(
        overload,
        what,
        [z if g is None else g for g, z in zip(got, zeros, strict=True)],
        [z if g is None else g for g, z in zip(want, zeros, strict=True)],
        coarseness_of_derivatives(wide_dtype(overload)),
    )


def _compare_gradients_of_some(overload: Overload, samples: Samples) -> None:
    """Where other tensors are frozen, for which there may be another formula, gradients are what they are among all."""
    given = samples.values(requires_grad=True)
    inputs = differentiable(overload, given)
    if len(inputs) < 2 or not has_derivatives(overload) or overload.is_random:
        return
    expected = gradients_of(run_kernel(overload, given), inputs, 1)
    for chosen in _subsets(len(inputs)):
        given = samples.values(requires_grad=True)
        inputs = differentiable(overload, given)
        for i, tensor in enumerate(inputs):
            tensor.requires_grad_(i in chosen)
        results = [result for result in run_kernel(overload, given) if result.requires_grad]
        got = gradients_of(results, [inputs[i] for i in chosen], 1)
        what = f"first derivatives of {', '.join(_name(overload, given, inputs[i]) for i in chosen)} alone"
        _agree(overload, what, [inputs[i] for i in chosen], got, [expected[i] for i in chosen])


def _subsets(count: int) -> list[tuple[int, ...]]:
    """Each alone, and all but one."""
    every = range(count)
    alone = [tuple(j for j in every if j == i) for i in every]
    return alone if count == 2 else alone + [tuple(j for j in every if j != i) for i in every]


def _name(overload: Overload, values: tuple[Any, ...], tensor: Tensor) -> str:
    """The argument that a tensor is, or is in."""
    found = (i for i in overload.tensor_positions if any(one is tensor for one in tensors_in([values[i]])))
    return f"'{overload.names[next(found)]}'"


def _float_positions(overload: Overload, values: tuple[Any, ...]) -> list[int]:
    """Of the plain floating-point tensors that have derivatives."""
    variables = [i for i in overload.tensor_positions if i not in overload.constants]
    return [i for i in variables if isinstance(values[i], Tensor) and has_fractions(values[i])]


def _only_floats(overload: Overload, values: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    """A function of the plain floating-point tensors alone that gives the differentiable results."""
    positions = _float_positions(overload, values)

    def of(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = list(values)
        for i, one in zip(positions, tensors, strict=True):
            given[i] = one
        fixed = overload.without_gradient
        results = zip(overload.result_names, as_tuple(function(overload, tuple(given))), strict=True)
        return tuple(r for name, r in results if name not in fixed and has_fractions(r))

    return of


class _Functions(NamedTuple):
    """The kernel and the reference as functions of plain floating-point tensors, these, and their positions."""

    mine: Any
    theirs: Any
    inputs: tuple[Tensor, ...]
    positions: list[int]


def _kernel_and_reference(overload: Overload, samples: Samples) -> _Functions | None:
    """Both as functions; None where there is nothing to differentiate."""
    if not has_derivatives(overload) or overload.is_random:
        return None
    given = samples.values()
    positions = _float_positions(overload, given)
    mine, theirs = (_only_floats(overload, given, function) for function in (run_kernel, run_reference))
    inputs = tuple(given[i] for i in positions)
    return _Functions(mine, theirs, inputs, positions) if inputs and mine(*inputs) else None


def forward_mode(overload: Overload, samples: Samples) -> None:
    """Forward-mode derivatives are those of the reference."""
    functions = _kernel_and_reference(overload, samples)
    if functions is None:
        return
    mine, theirs, inputs, _ = functions
    tangents = tuple(torch.cos(x) for x in inputs)
    with of_the_reference("forward mode"):
        want = torch.func.jvp(theirs, inputs, tangents)
    got = torch.func.jvp(mine, inputs, tangents)
    agree(overload, "forward mode: values", got[0], want[0])
    agree(overload, "forward mode: tangents", got[1], want[1])


def functional_transforms(overload: Overload, samples: Samples) -> None:
    """``torch.func``: vjp, vmap of grad, grad of vmap, and forward over reverse are those of the reference."""
    functions = _kernel_and_reference(overload, samples)
    if functions is None:
        return
    mine, theirs, inputs, positions = functions
    every = tuple(range(len(inputs)))
    stacked = tuple(
        torch.stack([x, 0.5 * x if holds_numbers(overload, i) else x]) for i, x in zip(positions, inputs, strict=True)
    )

    def total(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: sum((r * torch.cos(r)).sum() for r in map(real_parts, function(*xs)))

    forms: dict[str, Callable[[Callable[..., Any]], Any]] = {
        "grad": lambda f: torch.func.grad(total(f), every)(*inputs),
        "vmap of grad": lambda f: torch.vmap(torch.func.grad(total(f), every))(*stacked),
        "grad of vmap": lambda f: torch.func.grad(lambda *x: torch.vmap(total(f))(*x).sum(), every)(*stacked),
        "jvp of grad": lambda f: torch.func.jvp(torch.func.grad(total(f), every), inputs, inputs)[1],
    }
    for name, form in forms.items():
        with of_the_reference(name):
            want = form(theirs)
        agree(overload, name, form(mine), want)
