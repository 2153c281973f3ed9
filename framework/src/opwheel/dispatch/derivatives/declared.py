"""The derivatives that an operator declares, checked when it is registered."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..overload import Overload
from ..rules import Elementwise
from ..rules.rule import refuse
from .names import Names
from .text import TextFormula, parse, targets_of


class Declared:
    """A formula as it was declared, and checked.

    Args:
        inputs: the arguments whose gradients its results are.
        results: for each input, which of its results.
        formula: what computes them.
        names: which it uses.
    """

    def __init__(
        self,
        inputs: tuple[str, ...],
        results: tuple[int, ...],
        formula: TextFormula | Callable[..., Any],
        names: tuple[str, ...],
    ) -> None:
        self.inputs = inputs
        self.results = results
        self.formula = formula
        self.names = names

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
        declared = {} if overload.is_out else overload.operator.derivatives  # out= records nothing
        self.declared = [self._understood(key, formula) for key, formula in (declared or {}).items()]
        unknown = set(overload.operator.not_differentiable) - set(self._results)
        if unknown:
            refuse(overload, f"not_differentiable names {sorted(unknown)}", f"its results are {list(self._results)}")
        if declared is not None and not isinstance(overload.rule, Elementwise) and overload.is_random:
            self._check_random()
        self.fixed = tuple(self._results.index(name) for name in overload.operator.not_differentiable)
        self.uncovered = self._uncovered() if self.declared else ()

    def _understood(self, key: str, formula: Any) -> Declared:
        overload = self.overload
        try:
            inputs, results = targets_of(key)
        except ValueError as error:
            refuse(overload, f"derivatives[{key!r}]: {error}", 'such as "(x, residual), weight"')
        tensors = {
            overload.names[i] for i in overload.tensor_positions if i not in overload.written or overload.is_in_place
        }
        if not set(inputs) <= tensors:
            wrong = sorted(set(inputs) - tensors)
            refuse(overload, f"derivatives of {wrong}", f"its tensors are {sorted(tensors)}")
        if isinstance(formula, str):
            try:
                formula = parse(overload.namespace, formula)
            except ValueError as error:
                refuse(overload, f"derivatives[{key!r}]: {error}", "see opwheel.dispatch.derivatives.text")
            names = formula.names
            self._check_calls(key, formula, len({*results}))
        else:
            names = tuple(inspect.signature(formula).parameters)
        self._check_names(key, formula, names)
        return Declared(inputs, results, formula, names)

    def _check_names(self, key: str, formula: TextFormula | Callable[..., Any], names: Sequence[str]) -> None:
        """Whether each name means one thing."""
        known = self.names.known()
        if not set(names) <= known:
            unknown = f"derivatives[{key!r}] uses {sorted(set(names) - known)}"
            refuse(self.overload, unknown, f"there are {sorted(known)}")
        constants = formula.constants if isinstance(formula, TextFormula) else ()
        for name in (*names, *constants):
            found = self.names.ambiguity(name, is_text=isinstance(formula, TextFormula))
            if found:
                meanings, way_out = found
                refuse(self.overload, f"derivatives[{key!r}] uses {name!r}, which is {meanings}", way_out)

    def _check_calls(self, key: str, formula: TextFormula, count: int) -> None:
        """Whether there are such operators; of the library's own, whether they take the arguments and give the results.

        Operators of other libraries may be defined later.
        """
        own = [call for call in formula.calls if call.is_own]
        missing = [call.name for call in own if not self.overload.has_sibling(call.name)]
        if missing:
            refuse(self.overload, f"derivatives[{key!r}] calls {missing}", "which must be operators of the library")
        for call in formula.calls:
            if call.namespace == "aten" and not hasattr(torch.ops.aten, call.name):
                refuse(self.overload, f"derivatives[{key!r}] calls aten::{call.name}", "PyTorch has no such operator")
        for call in own:
            sibling = self.overload.sibling(call.name)
            if sibling is None:  # of an earlier registration
                continue
            if not call.fits(sibling.schema):
                way_out = f"its schema is {sibling.schema_text}"
                refuse(self.overload, f"derivatives[{key!r}]: {call.name} does not take these arguments", way_out)
            results = len(sibling.schema.returns)
            if call is formula.expression and results != count:
                problem = f"{call.name} has {results} result{'s' * (results != 1)}, the key takes {count}"
                refuse(self.overload, f"derivatives[{key!r}]: {problem}", "name as many tensors, or give a function")

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
        missing = {overload.names[i] for i in overload.tensor_positions if i not in overload.written} - have
        if missing:
            refuse(
                overload,
                f"a random operator with no formula for {sorted(missing)}: the reference would draw again",
                "give it one; 'None' for what has no gradient, such as integers",
            )

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
