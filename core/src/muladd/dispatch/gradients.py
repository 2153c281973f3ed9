"""Which gradient formulas run for a set of needed gradients, and which arguments must be kept for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from .overload import Overload


class Formula(NamedTuple):
    """A declared gradient: what it is for, what it is called with."""

    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    function: Callable[..., Any]

    @staticmethod
    def of(inputs: tuple[str, ...], function: Callable[..., Any]) -> Formula:
        """Read the parameters' names off the function."""
        return Formula(inputs, tuple(inspect.signature(function).parameters), function)

    def __call__(self, known: Mapping[str, Any]) -> Sequence[Tensor]:
        result = self.function(*(known[name] for name in self.parameters))
        return result if len(self.inputs) > 1 else (result,)


class GradientPlan(NamedTuple):
    """The formulas for one set of needed gradients, and the positions of the arguments they use."""

    formulas: tuple[Formula, ...]
    tensors: tuple[int, ...]
    numbers: tuple[int, ...]


class Gradients:
    """The declared gradients of one overload.

    Raises:
        ValueError: a gradient is declared for something that is no tensor argument of the schema.
    """

    def __init__(self, overload: Overload) -> None:
        operator = overload.operator
        unknown = set(operator.gradients) - set(overload.tensor_arguments)
        if unknown:
            raise ValueError(f"{overload.name}: gradients for {sorted(unknown)}, which its schema does not have")
        self._overload = overload
        self.plan = cache(self._plan)

    def _plan(self, needed: tuple[bool, ...]) -> GradientPlan:
        """The plan for the arguments, by position, whose gradients are needed."""
        names, operator = self._overload.arguments, self._overload.operator
        wanted = [name for name, is_needed in zip(names, needed, strict=True) if is_needed]
        formulas = []
        joint = operator.joint_gradient
        if joint and set(wanted).issuperset(joint.inputs):
            formulas.append(Formula.of(joint.inputs, joint.formula))
            wanted = [name for name in wanted if name not in joint.inputs]
        formulas += [Formula.of((name,), operator.gradients[name]) for name in wanted]
        used = {parameter for formula in formulas for parameter in formula.parameters}
        tensors = self._overload.tensor_arguments
        return GradientPlan(
            tuple(formulas),
            tuple(i for i, name in enumerate(names) if name in used and name in tensors),
            tuple(i for i, name in enumerate(names) if name in used and name not in tensors),
        )
