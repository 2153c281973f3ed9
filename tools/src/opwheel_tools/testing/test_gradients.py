"""Derivatives of every kind and order, against finite differences and against PyTorch's own operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.tensor_iterator import decompose
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.graph import allow_mutation_on_saved_tensors, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from . import reference
from .samples import ALIASES, arguments

pytestmark = pytest.mark.subsystem("gradients")

SHAPES = ([(3, 4)] * 3, [(3, 4), (4,), (3, 1)], [(2, 1, 3), (1, 3), ()], [(), (2, 3), (3,)], [(0, 3), (1, 3), (3,)])
TRANSFORMS = ("grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian")


def double(overload: Overload, shapes: Any, device: torch.device, *, grad: bool = True) -> tuple[Any, ...]:
    """Arguments in float64."""
    return arguments(overload, shapes, torch.float64, device, requires_grad=grad)


def pure(overload: Overload) -> Callable[..., Any]:
    """The call as a function without side effects, so that it can be differentiated numerically."""
    if overload.is_in_place:
        return lambda first, *rest: overload.op(first.clone(), *rest)
    return lambda *args: overload.op(*args)


def fits(overload: Overload, shapes: Any) -> Any:
    """As many shapes as there are tensors; in-place variants need the result's shape first."""
    return [(2, 3), *shapes[1:]][: len(overload.tensor_arguments)] if overload.is_in_place else shapes


def clone_what_is_saved() -> Any:
    """Hooks as for offloading: what they are given is what backward gets."""
    return saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor)


def skip_out(overload: Overload) -> None:
    """out= does not take part in differentiation."""
    if overload.is_out:
        pytest.skip("out= is refused when a gradient is needed")


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_gradcheck(overload: Overload, shapes: Any, device: torch.device) -> None:
    skip_out(overload)
    if overload.is_in_place and shapes is not SHAPES[0]:
        pytest.skip("in-place needs the result's shape")
    args = double(overload, shapes[: len(overload.tensor_arguments)], device)
    assert gradcheck(pure(overload), args, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(pure(overload), args, check_batched_grad=True)


def test_in_place_broadcasts_into_the_target(in_place: Overload, device: torch.device) -> None:
    args = double(in_place, [(3, 4), (4,), (3, 1)][: len(in_place.tensor_arguments)], device)
    assert gradcheck(pure(in_place), args, check_forward_ad=True)
    assert gradgradcheck(pure(in_place), args)


@pytest.mark.device_independent
def test_third_order(functional: Overload, device: torch.device) -> None:
    args = double(functional, (3,), device)
    leaf = functional.tensors(args)[0]
    mine, theirs = (
        _third_order(function, args, leaf) for function in (functional.op, lambda *a: decompose(functional, a))
    )
    torch.testing.assert_close(mine, theirs)


def _third_order(function: Callable[..., Any], args: tuple[Any, ...], leaf: Tensor) -> Tensor:
    value = torch.stack([part.pow(4).sum() for part in reference.as_tuple(function(*args))]).sum()
    for _ in range(3):
        (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
        value = gradient.sum()
    return gradient


@pytest.mark.device_independent
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_torch_func(overload: Overload, transform: str, device: torch.device) -> None:
    skip_out(overload)
    args = double(overload, (4,), device, grad=False)
    for position, name in enumerate(overload.arguments):
        if name in overload.tensor_arguments:
            mine = _transformed(transform, pure(overload), args, position)
            theirs = _transformed(transform, lambda *a: decompose(overload, a), args, position)
            torch.testing.assert_close(mine, theirs)


def _transformed(transform: str, function: Callable[..., Any], args: tuple[Any, ...], position: int) -> Any:
    def of_one(value: Tensor) -> Tensor:
        # A square, so that second derivatives are not all zero.
        results = reference.as_tuple(function(*args[:position], value, *args[position + 1 :]))
        return torch.stack([result.square() for result in results])

    point = args[position]
    if transform == "vjp":
        output, pullback = torch.func.vjp(of_one, point)  # type: ignore[misc]  # three only with has_aux
        return pullback(torch.ones_like(output))
    if transform == "jvp":
        return torch.func.jvp(of_one, (point,), (torch.ones_like(point),))
    if transform in ("grad", "hessian"):
        return getattr(torch.func, transform)(lambda value: of_one(value).sum())(point)
    return getattr(torch.func, transform)(of_one)(point)


@pytest.mark.device_independent
def test_vmap_of_grad_and_grad_of_vmap(functional: Overload, device: torch.device) -> None:
    args = double(functional, (5, 3), device, grad=False)
    dims = tuple(0 if isinstance(value, Tensor) else None for value in args)

    def total(*row: Any) -> Tensor:
        results = [result.square().sum() for result in reference.as_tuple(functional.op(*row))]
        return torch.stack(results).sum()

    position = functional.arguments.index(functional.tensor_arguments[0])
    per_row = torch.vmap(torch.func.grad(total, argnums=position), in_dims=dims)(*args)
    at_once = torch.func.grad(lambda *rows: torch.vmap(total, in_dims=dims)(*rows).sum(), argnums=position)(*args)
    expected = torch.func.grad(total, argnums=position)(*args)
    torch.testing.assert_close(per_row, expected)
    torch.testing.assert_close(at_once, expected)


@pytest.mark.device_independent
def test_forward_over_reverse(functional: Overload, device: torch.device) -> None:
    args = double(functional, (4,), device)
    leaf = functional.tensors(args)[0]

    def product(function: Callable[..., Any]) -> Tensor:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(leaf, torch.ones_like(leaf))
            given = tuple(dual if value is leaf else value for value in args)
            value = torch.stack([part.pow(3).sum() for part in reference.as_tuple(function(*given))]).sum()
            (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
            tangent: Tensor | None = forward_ad.unpack_dual(gradient).tangent
        assert tangent is not None
        return tangent

    torch.testing.assert_close(product(functional.op), product(lambda *a: decompose(functional, a)))


def test_only_needed_gradients(functional: Overload, device: torch.device) -> None:
    """The others are not computed, and that one is what it is among all, for which there may be another formula."""

    def total(args: Sequence[Any]) -> Tensor:
        results = reference.as_tuple(functional.op(*args))
        return torch.stack([(result * result).sum() for result in results]).sum()

    args = double(functional, (3, 4), device)
    among_all = torch.autograd.grad(total(args), functional.tensors(args))
    for name, expected in zip(functional.tensor_arguments, among_all, strict=True):
        given = tuple(value.detach() if isinstance(value, Tensor) else value for value in args)
        leaf = given[functional.arguments.index(name)].requires_grad_()
        total(given).backward()
        torch.testing.assert_close(leaf.grad, expected)
        assert all(tensor.grad is None for tensor in functional.tensors(given) if tensor is not leaf)


@pytest.mark.device_independent
def test_one_tensor_as_every_argument(functional: Overload, device: torch.device) -> None:
    def of_one(value: Tensor) -> Any:
        return functional.op(*(value if name in functional.tensor_arguments else 1.5 for name in functional.arguments))

    leaf = double(functional, (3, 4), device)[0]
    assert gradcheck(of_one, (leaf,), check_forward_ad=True)
    assert gradgradcheck(of_one, (leaf,))


def test_gradients_have_the_dtype_of_their_tensors(
    functional: Overload, dtype: torch.dtype, device: torch.device
) -> None:
    args = list(arguments(functional, (3, 4), torch.float32, device, requires_grad=True))
    position = functional.arguments.index(functional.tensor_arguments[0])
    args[position] = args[position].detach().to(dtype).requires_grad_()
    torch.stack([r.float().sum() for r in reference.as_tuple(functional.op(*args))]).sum().backward()
    for tensor in functional.tensors(tuple(args)):
        assert tensor.grad is not None
        assert tensor.grad.dtype is tensor.dtype


@pytest.mark.device_independent
def test_hooks_and_checkpoint(functional: Overload, device: torch.device) -> None:
    seen: list[Tensor] = []
    args = double(functional, (3, 4), device)
    leaf = functional.tensors(args)[0]

    def total(*given: Any) -> Tensor:
        return torch.stack([r.square().sum() for r in reference.as_tuple(functional.op(*given))]).sum()

    leaf.register_hook(seen.append)
    total(*args).backward()
    plain = leaf.grad
    leaf.grad = None
    checkpoint(total, *args, use_reentrant=False).backward()
    assert len(seen) == 2
    torch.testing.assert_close(leaf.grad, plain)


@pytest.mark.device_independent
def test_notices_a_saved_tensor_that_was_modified(functional: Overload, device: torch.device) -> None:
    """Wherever PyTorch's own operators notice it."""
    for position in range(len(functional.tensor_arguments)):
        outcomes = []
        for function in (functional.op, lambda *a: decompose(functional, a)):
            args = double(functional, (3, 4), device)
            copies = tuple(v.clone() if isinstance(v, Tensor) else v for v in args)
            results = reference.as_tuple(function(*copies))
            with torch.no_grad():
                functional.tensors(copies)[position].add_(1)
            try:
                torch.stack([r.sum() for r in results]).sum().backward()
                outcomes.append("fine")
            except RuntimeError as error:
                outcomes.append("modified by an inplace operation" if "inplace" in str(error) else str(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.device_independent
def test_in_place_refuses_a_leaf_and_a_view_of_one(in_place: Overload, device: torch.device) -> None:
    args = double(in_place, (3, 4), device)
    leaf, before = args[0], args[0].detach().clone()
    for target in (leaf, leaf.view(-1).view(3, 4)):
        with pytest.raises(RuntimeError, match="leaf"):
            in_place.op(target, *args[1:])
    assert torch.equal(leaf, before)


@pytest.mark.device_independent
@pytest.mark.parametrize(
    ("made", "wanted"),
    [("one of several", "target"), *((how, "others") for how in ("one of several", "no_grad", "inference_mode"))],
)
def test_in_place_refuses_views_that_autograd_cannot_follow(
    in_place: Overload, made: str, wanted: str, device: torch.device
) -> None:
    args = double(in_place, (3, 4), device, grad=wanted == "others")
    if wanted == "others" and len(in_place.tensor_arguments) == 1:
        pytest.skip("it has no others")
    base = args[0].detach().clone().requires_grad_(wanted == "target").clone()
    before = base.detach().clone()
    if made == "one of several":
        target = base.unbind(0)[0]
    else:
        with getattr(torch, made)():
            target = base[0]
    rest = tuple(value[0] if isinstance(value, Tensor) else value for value in args[1:])
    with pytest.raises(RuntimeError, match="view"):
        in_place.op(target, *rest)
    assert torch.equal(base, before)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="view"):
        in_place.op(target, *(forward_ad.make_dual(v, v.detach()) if isinstance(v, Tensor) else v for v in rest))
    assert torch.equal(base, before)


@pytest.mark.device_independent
def test_in_place_refuses_what_cannot_be_kept_for_a_gradient(in_place: Overload, device: torch.device) -> None:
    args = double(in_place, (3, 4), device)
    target, before = args[0].clone(), args[0].detach().clone()
    with torch.inference_mode():
        rest = tuple(value.clone() if isinstance(value, Tensor) else value for value in args[1:])
    if not any(isinstance(value, Tensor) for value in rest):
        pytest.skip("it has no other input")
    refusal = ""
    try:
        in_place.op(target, *rest)
    except RuntimeError as error:
        refusal = str(error)
    if refusal:
        assert "inference tensor" in refusal
        assert torch.equal(target, before)
    else:  # the formula of the gradient names none of them: nothing has to be kept
        expected = from_copies(in_place, args[0].clone(), *rest)
        torch.testing.assert_close(*(torch.autograd.grad(one.sum(), args[0])[0] for one in (target, expected)))


def from_copies(overload: Overload, target: Tensor, *rest: Any) -> Tensor:
    """The in-place call in PyTorch's own operators, all of which read copies."""
    copies = [value.clone() if isinstance(value, Tensor) else value for value in (target, *rest)]
    return target.copy_(decompose(overload, tuple(copies)))


@pytest.mark.device_independent
@pytest.mark.parametrize("context", [nullcontext, clone_what_is_saved, allow_mutation_on_saved_tensors])
@pytest.mark.parametrize("part", ["whole", "view of a base"])
@pytest.mark.parametrize("alias", ALIASES)
def test_in_place_with_an_argument_over_the_same_memory(
    in_place: Overload, alias: str, part: str, context: Callable[[], Any], device: torch.device
) -> None:
    """What a gradient needs of it is what was there before."""
    args = double(in_place, (3, 4), device, grad=False)

    def derivatives(function: Callable[..., Any]) -> list[Tensor]:
        leaf = args[0].clone().requires_grad_()
        base = torch.cat([leaf, leaf]) * 0.5
        target = base * 1 if part == "whole" else base[1:4]
        other = ALIASES[alias](target)
        function(target, *(other if isinstance(value, Tensor) else value for value in args[1:]))
        total = target.square().sum() + base.sum()
        (first,) = torch.autograd.grad(total, leaf, create_graph=True)
        return [target.detach(), first.detach(), *torch.autograd.grad(first.square().sum(), leaf)]

    with context():
        mine = derivatives(in_place.op)
    torch.testing.assert_close(mine, derivatives(lambda *given: from_copies(in_place, *given)))


@pytest.mark.device_independent
def test_in_place_on_a_view_updates_its_base(in_place: Overload, device: torch.device) -> None:
    args = double(in_place, (3, 4), device)

    def through_base(first: Tensor, *rest: Any) -> Tensor:
        base = first * 2
        in_place.op(base[1:], *(value[1:] if isinstance(value, Tensor) else value for value in rest))
        return base

    assert gradcheck(through_base, args)


@pytest.mark.device_independent
def test_out_is_refused_when_a_gradient_is_needed(out_variant: Overload, device: torch.device) -> None:
    plain = double(out_variant, (3, 4), device, grad=False)
    with pytest.raises(RuntimeError, match="differentiation"):
        out_variant.op(*double(out_variant, (3, 4), device), out=torch.zeros((3, 4), dtype=torch.float64))
    target = torch.zeros((3, 4), dtype=torch.float64, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="differentiation"):
        out_variant.op(*plain, out=target)
    with torch.no_grad():
        out_variant.op(*plain, out=target)
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        torch.func.grad(lambda x: out_variant.op(x, *plain[1:], out=torch.empty_like(x)).sum())(plain[0])
