"""Derivatives of the reference: slow, and right to every order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import autocast
from ..decompositions import decompose
from ..overload import Overload, as_tuple


def gradients_through_reference(
    overload: Overload, values: tuple[Any, ...], needed: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Vector-Jacobian products of the reference, computed again from the arguments.

    Where grad mode is on, they can be differentiated again, by the arguments and by ``grads``.

    Args:
        overload: what was called.
        values: its arguments.
        needed: for each tensor among them, in order, whether its gradient is needed.
        grads: of the results; None is zero.

    Returns:
        A gradient, or None, for each tensor.
    """
    again = torch.is_grad_enabled()
    wanted = iter(needed)
    inputs: list[Tensor] = []

    def leaf(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [leaf(one) for one in value]
        if not isinstance(value, Tensor):
            return value
        if not next(wanted):
            return value if again else value.detach()  # the gradients that are needed depend on it
        # A view by which may be differentiated, and through which a second derivative reaches the argument.
        inputs.append(value.view_as(value) if again else value.detach().requires_grad_())
        return inputs[-1]

    positions = set(overload.tensor_positions)
    with torch.enable_grad(), autocast.off():
        given = tuple(leaf(value) if i in positions else value for i, value in enumerate(values))
        results = as_tuple(decompose(overload, given))
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(inputs)
        if pairs:
            outputs, incoming = zip(*pairs, strict=True)
            found = torch.autograd.grad(outputs, inputs, incoming, create_graph=again, allow_unused=True)
    gradients = iter(found)
    return [next(gradients) if is_needed else None for is_needed in needed]
