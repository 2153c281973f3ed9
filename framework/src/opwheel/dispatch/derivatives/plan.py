"""Which formulas run for a set of needed gradients, and what must be kept for them."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..overload import Overload
from ..rules import Elementwise
from ..rules.rule import refuse
from .names import Names
from .text import TextFormula, parse, targets_of


class Formula(NamedTuple):
    """A declared derivative, with positions in place of names."""

    name: str  # of the operator and the derivative, for messages
    function: Callable[..., Any]
    values: tuple[int | slice, ...]  # its parameters, among the values that Plan.gradients is given
    inputs: tuple[int, ...]  # what its results are the gradients of, among the arguments
    results: tuple[int, ...]  # for each input, which of its results


class Plan(NamedTuple):
    """What to do for one set of needed gradients.

    Args:
        formulas: to be computed.
        named: positions of the results whose gradients the formulas name.
        tensors: positions of the arguments to keep that are one tensor.
        others: positions of the other arguments to keep: numbers, and optional tensors and lists of them.
        results: positions of the results to keep.
        without_formula: whether some needed gradient has no formula: then all go through the reference.
        uncovered: positions of the results whose gradients no formula names: where one of them arrives, all go through
            the reference.
        is_inexact_again: whether a result without a gradient is kept, which is a function of the inputs all the same:
            differentiating the formulas would take it for a constant. Then second derivatives go through the reference.
    """

    formulas: tuple[Formula, ...]
    named: tuple[int, ...]
    tensors: tuple[int, ...]
    others: tuple[int, ...]
    results: tuple[int, ...]
    without_formula: bool
    uncovered: tuple[int, ...]
    is_inexact_again: bool

    def gradients(self, values: Sequence[Any], count: int) -> list[Any]:
        """The gradients of ``count`` arguments.

        Args:
            values: the results' gradients, then what was kept: tensors, results, others.
            count: of the operator's arguments.
        """
        gradients: list[Tensor | None] = [None] * count
        for formula in self.formulas:
            gradient = formula.function(*[values[i] for i in formula.values])
            count_of_results = formula.results[-1] + 1
            parts = gradient if isinstance(gradient, (tuple, list)) and count_of_results > 1 else (gradient,)
            if len(parts) != count_of_results:
                raise ValueError(
                    f"{formula.name} gave {'a tensor' if len(parts) == 1 else f'{len(parts)} results'}, "
                    f"its key has gradients for {count_of_results}"
                )
            for i, result in zip(formula.inputs, formula.results, strict=True):
                gradients[i] = parts[result]
        return gradients


class Declared(NamedTuple):
    """A formula as it was declared, and checked."""

    inputs: tuple[str, ...]  # the arguments whose gradients its results are
    results: tuple[int, ...]  # for each input, which of its results
    formula: TextFormula | Callable[..., Any]
    names: tuple[str, ...]  # which it uses

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
        plan: ``plan(needed, is_uncovered)``: what to do where the gradients of these arguments, by position, are
            needed; whether a result of ``uncovered`` has a gradient.

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
        self.plan = cache(self._plan)

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
        used = set(self.fixed).union(*(self._gradients_in(one) for one in self.declared))
        return tuple(i for i in range(len(self._results)) if i not in used)

    def _gradients_in(self, declared: Declared) -> set[int]:
        """Positions of the results whose gradients a formula names."""
        positions = self.names.gradients
        found: set[int] = set()
        for name in declared.names:
            where = positions.get(name, slice(0))
            found |= {where} if isinstance(where, int) else set(range(len(self._results))[where])
        return found

    def _chosen(self, wanted: Sequence[str]) -> tuple[list[Declared], bool]:
        """The formulas for the wanted gradients, those for several inputs first; whether one is missing."""
        chosen: list[Declared] = []
        left = set(wanted)
        single = {one.inputs[0] for one in self.declared if len(one.inputs) == 1}
        for one in sorted(self.declared, key=lambda one: -len(one.inputs)):
            needed = left & set(one.inputs)
            if needed and (needed == set(one.inputs) or not needed <= single):
                chosen.append(one)
                left -= needed
        return chosen, bool(left)

    def _plan(self, needed: tuple[bool, ...], is_uncovered: bool) -> Plan:
        overload, names = self.overload, self.overload.names
        chosen, is_missing = self._chosen([name for name, is_needed in zip(names, needed, strict=True) if is_needed])
        used = set().union(*(one.names for one in chosen))
        kept_results = [i for i, name in enumerate(self._results) if name in used]
        is_inexact_again = not overload.is_random and bool(set(kept_results) & set(self.fixed))
        if is_missing:
            chosen, kept_results = [], []
        if is_missing or is_uncovered or is_inexact_again:
            used = used | set(names)
        plain = [i for i in overload.tensor_positions if str(overload.schema.arguments[i].real_type) == "Tensor"]
        tensors = [i for i in plain if names[i] in used]
        others = [i for i, name in enumerate(names) if name in used and i not in plain]
        count = len(self._results)
        positions: dict[str, int | slice] = dict(self.names.gradients)
        kept = [*(names[i] for i in tensors), *(self._results[i] for i in kept_results), *(names[i] for i in others)]
        positions |= {name: count + i for i, name in enumerate(kept)}
        return Plan(
            tuple(
                Formula(
                    f"{overload.qualified_name}: derivatives[{', '.join(one.inputs)!r}]",
                    one.function,
                    tuple(positions[n] for n in one.names),
                    tuple(map(names.index, one.inputs)),
                    one.results,
                )
                for one in chosen
            ),
            tuple(sorted(set().union(*(self._gradients_in(one) for one in chosen)))),
            tuple(tensors),
            tuple(others),
            tuple(kept_results),
            is_missing,
            self.uncovered if is_uncovered else (),
            is_inexact_again,
        )
