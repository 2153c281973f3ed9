"""The kernel at the Autograd key decides which derivative rules apply to a call.

1. Under a ``torch.func`` transform, or when an input carries a forward-mode tangent, the call decomposes into ATen
   operators, and ATen's own rules apply: reverse, forward, any order, any composition.
2. Otherwise, when an input requires grad, an ``autograd.Function`` runs the backend's kernel and, backwards, the
   declared gradients.
3. Otherwise the backend's kernel runs and nothing is recorded.

``torch.library.register_autograd`` covers only the second: under the first it fails or, in forward mode, silently
returns wrong tangents (docs/decisions/0003-autograd-key.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _torch_private as private
from .elementwise import check_inputs, check_output, decompose
from .overload import Overload


def autograd_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for one overload; it is called with the dispatch key set in front."""
    function = _autograd_function(overload)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [*overload.tensors(args), *kwargs.values()]
        if private.functorch_is_active() or (private.forward_ad_is_active() and _has_tangent(tensors)):
            return _decomposed(overload, args, kwargs)
        if torch.is_grad_enabled() and private.any_requires_grad(*tensors):
            if overload.is_out:
                raise RuntimeError(
                    f"{overload.name}: functions with out= do not support automatic differentiation, but one of the "
                    "arguments requires grad. Leave out= away, or call it under torch.no_grad()"
                )
            original = None
            if overload.is_in_place:
                _check_may_be_overwritten(overload, args[0])
                # A formula may need what is overwritten, and double backward must find the way through it.
                original = args[0].clone()
            return function.apply(keyset, original, *args)
        return _below_autograd(overload, keyset, args, kwargs)

    return kernel


def _below_autograd(overload: Overload, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with private.below_autograd():
        return overload.op.redispatch(keyset & private.after_autograd_keys, *args, **kwargs)


def _has_tangent(tensors: list[Tensor]) -> bool:
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def _decomposed(overload: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if overload.is_out:
        raise RuntimeError(
            f"{overload.name}: out= cannot be used under torch.func transforms or forward-mode differentiation; use "
            "the functional variant"
        )
    check_inputs(overload, args)
    if not overload.is_in_place:
        return decompose(overload, args)
    target = overload.mutated(args, kwargs)
    result = decompose(overload, (target.clone(), *args[1:]))
    check_output(overload, target, result.shape, result.dtype, result.device)
    return target.copy_(result)


def _check_may_be_overwritten(overload: Overload, target: Tensor) -> None:
    """PyTorch finds these out after the kernel has written; by then the data is gone."""
    if not target.requires_grad:
        return
    base = target._base if target._is_view() else None
    if target.is_leaf or (base is not None and base.is_leaf and base.requires_grad):
        what = "a leaf variable" if base is None else "a view of a leaf variable"
        raise RuntimeError(
            f"{overload.name}: {what} that requires grad is being used in an in-place operation; use the functional "
            "variant, or torch.no_grad()"
        )
    if base is not None and not private.view_may_be_modified(target):
        raise RuntimeError(
            f"{overload.name}: '{overload.arguments[0]}' is a view that does not allow in-place modification (one of "
            "several views from one call, or made under no_grad); clone it first"
        )


def _autograd_function(overload: Overload) -> type[torch.autograd.Function]:
    operator = overload.operator
    parameters = {name: _parameters(formula) for name, formula in operator.gradients.items()}
    joint = operator.joint_gradient
    names = overload.arguments
    several = len(overload.schema.returns) > 1

    def formulas_for(needed: set[str]) -> list[tuple[tuple[str, ...], Callable[..., Any]]]:
        if joint is not None and needed.issuperset(joint.inputs):
            rest = [name for name in names if name in needed and name not in joint.inputs]
            return [(joint.inputs, joint.formula), *(((name,), operator.gradients[name]) for name in rest)]
        return [((name,), operator.gradients[name]) for name in names if name in needed]

    class Derivative(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keyset: Any, original: Tensor | None, *args: Any) -> Any:
            needed = {name for name, wanted in zip(names, ctx.needs_input_grad[2:], strict=True) if wanted}
            ctx.formulas = formulas_for(needed)
            wanted = {name for _, formula in ctx.formulas for name in _parameters(formula)}
            values = {name: value for name, value in zip(names, args, strict=True) if name in wanted}
            ctx.saved_names = [name for name in values if name in overload.tensor_arguments]
            ctx.values = {name: value for name, value in values.items() if name not in ctx.saved_names}
            if original is not None and names[0] in values:
                values[names[0]] = original
            result = _below_autograd(overload, keyset, args, {})
            if overload.is_in_place:
                result = args[0]
                ctx.mark_dirty(result)
            ctx.save_for_backward(*(values[name] for name in ctx.saved_names))
            ctx.set_materialize_grads(several)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Any:
            results: dict[str, Tensor] = {}
            if grads[0] is not None:
                known = dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True)) | ctx.values
                known |= {f"grad_{i}": grad for i, grad in enumerate(grads)} if several else {"grad": grads[0]}
                for inputs, formula in ctx.formulas:
                    value = formula(**{name: known[name] for name in _parameters(formula)})
                    results |= zip(inputs, value if len(inputs) > 1 else (value,), strict=True)
            # The engine sums each gradient to its input's shape and casts it to its dtype.
            return (None, None, *(results.get(name) for name in names))

    unknown = set(parameters) - set(overload.tensor_arguments)
    if unknown:
        raise ValueError(
            f"{overload.name}: gradients for {sorted(unknown)}, but the schema has no such tensor arguments"
        )
    Derivative.__name__ = Derivative.__qualname__ = f"{overload.name.replace('.', '_')}_derivative"
    return Derivative


def _parameters(formula: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(formula).parameters)
