"""Derivatives as the native Autograd library reads them: ``csrc/autograd/notation.h`` describes the notation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .declared import Declared, Derivatives
from .expression import Expression, NotCarriedError
from .names import Names
from .text import TextFormula

_HEAD = "opwheel-derivatives 3"  # kHead in csrc/autograd/notation.cpp: another number where the notation changes
_END = "end"


def document(descriptions: Iterable[str]) -> str:
    """What the native Autograd library is given.

    Args:
        descriptions: of operators, by :func:`describe`.
    """
    return "\n".join([_HEAD, *descriptions, _END])


def describe(derivatives: Derivatives, reference: str | None, recorded: str | None) -> str:
    """One operator's derivatives.

    Args:
        derivatives: of the operator.
        reference: the qualified name of the operator that is called for its reference. None where there is no Python,
            and so no reference: formulas that the notation cannot express are left out, and a gradient that needs one
            of them is an error.
        recorded: the qualified name of the operator that is called in this one's place where a gradient is recorded,
            with these results before others; None where this one's own formulas are for that.

    Raises:
        NotCarriedError: the notation cannot express some formula.
    """
    overload = derivatives.overload
    lines = [f"operator {overload.qualified_name}"]
    if reference is not None:
        lines.append(f"reference {reference}")
    if recorded is not None:
        lines.append(f"recorded {recorded}")
    if overload.operator.derivatives is None:
        lines.append("no_derivative")
    lines += [f"fixed_result {overload.result_names[i]}" for i in derivatives.fixed]
    lines += [f"fixed_argument {overload.names[i]}" for i in overload.constants]
    if overload.is_random:
        lines.append("random")
    for declared in derivatives.declared:
        try:
            lines += _formula(declared, derivatives.names)
        except NotCarriedError:
            if reference is not None:
                raise
    return "\n".join(lines)


def _formula(declared: Declared, names: Names) -> list[str]:
    if not isinstance(declared.formula, TextFormula):
        raise NotCarriedError("its derivatives are Python functions")
    targets = zip(declared.inputs, declared.results, strict=True)
    return [
        *_instructions(declared.formula.expression, names),
        f"formula {' '.join(f'{name} {result}' for name, result in targets)}",
    ]


def _instructions(expression: Expression, names: Names) -> Iterator[str]:
    for part in expression.parts:
        yield from _instructions(part, names)
    yield expression.instruction(names)
