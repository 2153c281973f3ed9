"""Which gradient formulas run for a set of needed gradients, and which arguments must be kept for them."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from .overload import Overload


class Formula(NamedTuple):
    """A declared gradient, with positions in place of names."""

    function: Callable[..., Any]
    values: tuple[int, ...]  # its parameters, among the output gradients, the kept tensors and the kept numbers
    inputs: tuple[int, ...]  # what its results are the gradients of, among the arguments


class GradientPlan(NamedTuple):
    """The formulas for one set of needed gradients, and the positions of the arguments they use."""

    formulas: tuple[Formula, ...]
    tensors: tuple[int, ...]
    numbers: tuple[int, ...]

    def gradients(self, values: Sequence[Any], count: int) -> list[Tensor | None]:
        """The gradients of ``count`` arguments."""
        results: list[Tensor | None] = [None] * count
        for formula in self.formulas:
            gradient = formula.function(*[values[i] for i in formula.values])
            if len(formula.inputs) == 1:
                results[formula.inputs[0]] = gradient
            else:
                for i, part in zip(formula.inputs, gradient, strict=True):
                    results[i] = part
        return results


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
        formulas: list[tuple[Callable[..., Any], tuple[str, ...]]] = []
        joint = operator.joint_gradient
        if joint and set(wanted).issuperset(joint.inputs):
            formulas.append((joint.formula, joint.inputs))
            wanted = [name for name in wanted if name not in joint.inputs]
        formulas += [(operator.gradients[name], (name,)) for name in wanted]
        parameters = [tuple(inspect.signature(function).parameters) for function, _ in formulas]
        used = set().union(*parameters)
        tensors = [i for i, name in enumerate(names) if name in used and name in self._overload.tensor_arguments]
        numbers = [i for i, name in enumerate(names) if name in used and name not in self._overload.tensor_arguments]
        results = len(self._overload.schema.returns)
        grads = [f"grad_{i}" for i in range(results)] if results > 1 else ["grad"]
        values = [*grads, *(names[i] for i in tensors), *(names[i] for i in numbers)]
        return GradientPlan(
            tuple(
                Formula(function, tuple(map(values.index, used_by)), tuple(map(names.index, inputs)))
                for (function, inputs), used_by in zip(formulas, parameters, strict=True)
            ),
            tuple(tensors),
            tuple(numbers),
        )
