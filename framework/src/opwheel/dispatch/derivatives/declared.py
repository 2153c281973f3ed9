"""The derivatives that an operator declares, checked when it is registered."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..overload import NON_DIFFERENTIABLE, Overload
from ..rules import Elementwise
from ..rules.rule import refuse
from .checks import check_calls, check_properties
from .expression import Call, Name, Property
from .names import CONSTANTS, Names
from .text import FormulaError, TextFormula, parse, targets_of


class Declared:
    """A formula as it was declared, and checked.

    Args:
        inputs: the arguments whose gradients its results are.
        results: for each input, which of its results.
        formula: what computes them.
        names: which it uses.
        given: what it is called with: names, and keys of ``properties``.
        properties: of tensors with a name.
    """

    def __init__(
        self,
        inputs: tuple[str, ...],
        results: tuple[int, ...],
        formula: TextFormula | Callable[..., Any],
        names: tuple[str, ...],
        given: tuple[str, ...],
        properties: Mapping[str, Property],
    ) -> None:
        self.inputs = inputs
        self.results = results
        self.formula = formula
        self.names = names
        self.given = given
        self.properties = properties

    @property
    def function(self) -> Callable[..., Any]:
        return self.formula.function if isinstance(self.formula, TextFormula) else self.formula


class Derivatives:
    """The declared derivatives of one overload.

    Attributes:
        overload: whose they are.
        names: what formulas may use.
        declared: the formulas.
        fixed: positions of the results that are declared as ``not_differentiable``.
        uncovered: positions of results whose gradients no formula names, although they are not declared as
            ``not_differentiable``. Integers among them have none.

    Raises:
        ValueError: a derivative of what is not a tensor argument, of names that its formula cannot use, or of a
            random operator whose formulas name nothing that it has drawn, or that has an input without a formula.
    """

    def __init__(self, overload: Overload) -> None:
        self.overload = overload
        self._results = overload.result_names
        self.names = Names(overload.names, overload.result_names)
        self._check_fixed()
        self.fixed = tuple(i for i, name in enumerate(self._results) if name in overload.without_gradient)
        declared = {} if overload.is_out else overload.operator.derivatives  # out= records nothing
        self.declared = [
            self._understood(key, formula) for key, formula in (declared or {}).items() if formula != NON_DIFFERENTIABLE
        ]
        if declared is not None and not isinstance(overload.rule, Elementwise) and overload.is_random:
            self._check_random()
        self._check_overwritten()
        self.uncovered = self._uncovered() if self.declared else ()

    def _tensors(self) -> set[str]:
        """The arguments that may have a gradient."""
        overload = self.overload
        return {
            overload.names[i] for i in overload.tensor_positions if i not in overload.written or overload.is_in_place
        }

    def _check_fixed(self) -> None:
        """Whether what is declared to have no gradient is there, once, and is not overwritten."""
        overload = self.overload
        names = overload.without_gradient
        tensors = {overload.names[i] for i in overload.tensor_positions}
        both = names & tensors & {*self._results}
        unknown = names - tensors - {*self._results}
        if unknown:
            there_are = f"its results are {list(self._results)}, its tensors {sorted(tensors)}"
            refuse(overload, f"not_differentiable names {sorted(unknown)}", there_are)
        if both:
            refuse(overload, f"not_differentiable names {sorted(both)}, an argument and a result", "rename one of them")
        written = [overload.names[i] for i in overload.constants if i in overload.written and overload.is_in_place]
        if written:
            refuse(overload, f"{written} is overwritten, and declared to have no gradient", "give it a formula")

    def _understood(self, key: str, formula: Any) -> Declared:
        overload = self.overload
        try:
            inputs, results = targets_of(key)
        except ValueError as error:
            refuse(overload, f"derivatives[{key!r}]: {error}", 'such as "(x, residual), weight"')
        tensors = self._tensors()
        if not set(inputs) <= tensors:
            wrong = sorted(set(inputs) - tensors)
            refuse(overload, f"derivatives of {wrong}", f"its tensors are {sorted(tensors)}")
        fixed = {overload.names[i] for i in overload.constants}
        if fixed & set(inputs):
            problem = f"derivatives of {sorted(fixed & set(inputs))}, which is declared to have no gradient"
            refuse(overload, problem, "leave one of the two out")
        if not isinstance(formula, str):
            names = tuple(inspect.signature(formula).parameters)
            self._check_names(key, dict.fromkeys(names, ""), is_text=False)
            return Declared(inputs, results, formula, names, names, {})
        try:
            understood = parse(overload.namespace, formula)
        except FormulaError as error:
            refuse(overload, f"derivatives[{key!r}]: {error.problem}", f"{error.way_out}{error.marked}")
        places = {one.name: understood.marked(one) for one in reversed(understood.parts) if isinstance(one, Name)}
        self._check_names(key, places | dict.fromkeys(understood.constants, ""), is_text=True)
        check_properties(overload, key, understood)
        check_calls(overload, key, understood, len({*results}))
        return Declared(inputs, results, understood, understood.names, understood.given, understood.properties)

    def _check_names(self, key: str, names: Mapping[str, str], *, is_text: bool) -> None:
        """Whether each name, with where it is in the formula, means one thing that is there."""
        known = self.names.known() | (CONSTANTS.keys() if is_text else set())
        unknown = [name for name in names if name not in known]
        if unknown:
            way_out = f"there are {sorted(self.names.known())}{names[unknown[0]]}"
            refuse(self.overload, f"derivatives[{key!r}] uses {sorted(unknown)}", way_out)
        for name, place in names.items():
            found = self.names.ambiguity(name, is_text=is_text)
            if found:
                meanings, way_out = found
                problem = f"derivatives[{key!r}] uses {name!r}, which is {meanings}"
                refuse(self.overload, problem, f"{way_out}{place}")
            where = self.names.gradients.get(name)
            if isinstance(where, int) and where in self.fixed:
                problem = f"derivatives[{key!r}] uses {name!r}, and {self._results[where]!r} is declared to have none"
                others = [f"grad_{result}" for i, result in enumerate(self._results) if i not in self.fixed]
                refuse(self.overload, problem, f"there are {others}{place}")

    def _check_random(self) -> None:
        overload = self.overload
        names = set().union(*(one.names for one in self.declared))
        if not names & set(self._results):
            refuse(
                overload,
                "a random operator whose derivatives name no result: the reference would draw again",
                "return what was drawn (a mask) and name it in the formulas, or declare derivatives=None",
            )
        have = set().union(*(one.inputs for one in self.declared))
        fixed = {*overload.constants, *overload.written}
        missing = {overload.names[i] for i in overload.tensor_positions if i not in fixed} - have
        if missing:
            refuse(
                overload,
                f"a random operator with no formula for {sorted(missing)}: the reference would draw again",
                "give it one, or name it in not_differentiable",
            )

    def _check_overwritten(self) -> None:
        """Whether what a formula may overwrite is in no other, and its value is one gradient."""
        for one in self.declared:
            expression = one.formula.expression if isinstance(one.formula, TextFormula) else None
            if not isinstance(expression, Call) or not expression.in_place:
                continue
            (name,) = {part.name for part in expression.parts[:1] if isinstance(part, Name)}
            problem = f"derivatives[{', '.join(one.inputs)!r}]: {expression.in_place} overwrites {name!r}"
            if len(one.inputs) > 1:
                refuse(self.overload, problem, "it can be the gradient of one input alone")
            if sum(self._count(other, name) for other in self.declared) > 1:
                refuse(self.overload, problem, "and formulas name it more than once")

    @staticmethod
    def _count(declared: Declared, name: str) -> int:
        """How often a formula names something."""
        if not isinstance(declared.formula, TextFormula):
            return declared.names.count(name)
        return sum(isinstance(part, Name) and part.name == name for part in declared.formula.parts)

    def _uncovered(self) -> tuple[int, ...]:
        used = set(self.fixed).union(*(self.gradients_in(one) for one in self.declared))
        return tuple(i for i in range(len(self._results)) if i not in used)

    def gradients_in(self, declared: Declared) -> set[int]:
        """Positions of the results whose gradients a formula names."""
        positions = self.names.gradients
        found: set[int] = set()
        for name in declared.names:
            where = positions.get(name, slice(0))
            found |= {where} if isinstance(where, int) else set(range(len(self._results))[where])
        return found
