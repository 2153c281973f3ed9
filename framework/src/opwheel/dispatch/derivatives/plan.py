"""Which formulas run for a set of needed gradients, and what must be kept for them.

Imported only where derivatives are in Python: the native Autograd library makes plans of its own.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from .declared import Declared, Derivatives


class Formula(NamedTuple):
    """A declared derivative, with positions in place of names."""

    name: str  # of the operator and the derivative, for messages
    function: Callable[..., Any]
    values: tuple[int | slice, ...]  # its parameters, among the values that Plan.gradients is given
    inputs: tuple[int, ...]  # what its results are the gradients of, among the arguments
    results: tuple[int, ...]  # for each input, which of its results


class KeptProperty(NamedTuple):
    """A property of an argument or a result that is kept in place of the tensor."""

    of: Callable[[Any], Any]  # what finds it out
    is_of_result: bool
    position: int  # of the tensor, among the arguments or the results


class Plan(NamedTuple):
    """What to do for one set of needed gradients.

    Args:
        formulas: to be computed.
        named: positions of the results whose gradients the formulas name.
        tensors: positions of the arguments to keep that are one tensor.
        others: positions of the other arguments to keep: numbers, and optional tensors and lists of them.
        results: positions of the results to keep.
        properties: to keep.
        properties_of_gradients: found out from the gradients that arrive: what does so, and the position of the result.
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
    properties: tuple[KeptProperty, ...]
    properties_of_gradients: tuple[tuple[Callable[[Any], Any], int], ...]
    without_formula: bool
    uncovered: tuple[int, ...]
    is_inexact_again: bool

    def gradients(self, values: Sequence[Any], count: int) -> list[Any]:
        """The gradients of ``count`` arguments.

        Args:
            values: the results' gradients, then what was kept: tensors, results, others, properties.
            count: of the operator's arguments.
        """
        gradients: list[Tensor | None] = [None] * count
        values = (*values, *(of(values[i]) for of, i in self.properties_of_gradients))
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


@cache
def plan_of(derivatives: Derivatives, needed: tuple[bool, ...], is_uncovered: bool) -> Plan:
    """What to do for one set of needed gradients.

    Args:
        derivatives: of the operator.
        needed: for each of its arguments, whether its gradient is.
        is_uncovered: whether a result of ``derivatives.uncovered`` has a gradient.
    """
    overload, names, results = derivatives.overload, derivatives.overload.names, derivatives.overload.result_names
    wanted = [name for name, is_needed in zip(names, needed, strict=True) if is_needed]
    chosen, is_missing = _chosen(derivatives.declared, wanted)
    used = set().union(*(one.given for one in chosen))
    kept_results = [i for i, name in enumerate(results) if name in used]
    is_inexact_again = not overload.is_random and bool(set(kept_results) & set(derivatives.fixed))
    if is_missing:
        chosen, kept_results = [], []
    properties, of_gradients = _properties_of(derivatives, chosen)
    if is_missing or is_uncovered or is_inexact_again:
        used = used | set(names)
    plain = [i for i in overload.tensor_positions if str(overload.schema.arguments[i].real_type) == "Tensor"]
    tensors = [i for i in plain if names[i] in used]
    others = [i for i, name in enumerate(names) if name in used and i not in plain]
    count = len(results)
    positions: dict[str, int | slice] = dict(derivatives.names.gradients)
    kept = [*(names[i] for i in tensors), *(results[i] for i in kept_results), *(names[i] for i in others)]
    kept += [*properties, *of_gradients]
    positions |= {name: count + i for i, name in enumerate(kept)}
    return Plan(
        tuple(
            Formula(
                f"{overload.qualified_name}: derivatives[{', '.join(one.inputs)!r}]",
                one.function,
                tuple(positions[n] for n in one.given),
                tuple(map(names.index, one.inputs)),
                one.results,
            )
            for one in chosen
        ),
        tuple(sorted(set().union(*(derivatives.gradients_in(one) for one in chosen)))),
        tuple(tensors),
        tuple(others),
        tuple(kept_results),
        tuple(properties.values()),
        tuple(of_gradients.values()),
        is_missing,
        derivatives.uncovered if is_uncovered else (),
        is_inexact_again,
    )


def _properties_of(
    derivatives: Derivatives, chosen: Sequence[Declared]
) -> tuple[dict[str, KeptProperty], dict[str, tuple[Callable[[Any], Any], int]]]:
    """The properties that formulas have, by their keys: those to keep, and those of gradients."""
    overload = derivatives.overload
    kept: dict[str, KeptProperty] = {}
    of_gradients: dict[str, tuple[Callable[[Any], Any], int]] = {}
    for key, one in ((key, one) for declared in chosen for key, one in declared.properties.items()):
        where = derivatives.names.gradients.get(one.name)
        if isinstance(where, int):
            of_gradients[key] = one.of, where
        elif one.name in overload.result_names:
            kept[key] = KeptProperty(one.of, True, overload.result_names.index(one.name))
        else:
            kept[key] = KeptProperty(one.of, False, overload.names.index(one.name))
    return kept, of_gradients


def _chosen(declared: Sequence[Declared], wanted: Sequence[str]) -> tuple[list[Declared], bool]:
    """The formulas for the wanted gradients, those for several inputs first; whether one is missing."""
    chosen: list[Declared] = []
    left = set(wanted)
    single = {one.inputs[0] for one in declared if len(one.inputs) == 1}
    for one in sorted(declared, key=lambda one: -len(one.inputs)):
        needed = left & set(one.inputs)
        if needed and (needed == set(one.inputs) or not needed <= single):
            chosen.append(one)
            left -= needed
    return chosen, bool(left)
