"""What is claimed about bits: read from text, and checked against the names of a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opwheel.dispatch.invariance import WITH_DIMENSIONS, alternatives
from opwheel.registry.values import INVARIANCES

from ..usage import UsageError

_EXAMPLE = "batch:x=0,result=0"

Claim = tuple[str, dict[str, int]]
"""Its name, and dimensions by name of argument and result."""


def claims_of(given: str | Iterable[str] | Mapping[str, Any]) -> list[Claim]:
    """Claims that a user gives.

    Args:
        given: ``"batch:x=0,result=0"``, several of such texts, or a mapping as ``Operator(invariant=...)`` takes it.

    Raises:
        UsageError: one is not understood: which, and what to write.
    """
    if isinstance(given, Mapping):
        found = [(name, _dimensions_of(name, one)) for name, each in given.items() for one in alternatives(each)]
    else:
        found = [_read(text) for text in ((given,) if isinstance(given, str) else given)]
    if not found:
        raise UsageError(f"nothing is claimed; name claims, such as {_EXAMPLE}, of {', '.join(INVARIANCES)}")
    for name, dimensions in found:
        if name not in INVARIANCES:
            raise UsageError(f"there is no claim {name!r}; there are {', '.join(INVARIANCES)}")
        if name in WITH_DIMENSIONS and not dimensions:
            raise UsageError(f"{name!r} needs dimensions by name of argument and result, such as {name}:x=0,result=0")
        if name == "order" and any(dim >= 0 for dim in dimensions.values()):
            raise UsageError("'order' takes dimensions that are counted from the end, such as order:x=-2")
    return found


def check_names(claim: Claim, arguments: Iterable[str], results: Iterable[str]) -> None:
    """Refuse a claim about what a candidate has not got.

    Args:
        claim: the claim.
        arguments: names of the candidate's tensors.
        results: names of what it returns or writes.

    Raises:
        UsageError: naming what there is.
    """
    (name, dimensions), arguments, results = claim, list(arguments), list(results)
    there = list(dict.fromkeys(arguments if name == "order" else [*arguments, *results]))
    for key in dimensions:
        if key not in there:
            raise UsageError(f"{name}: {key!r} is no tensor of this call; there are {', '.join(there)}")
    if name in WITH_DIMENSIONS and not set(dimensions).intersection(arguments):
        raise UsageError(f"{name}: it names no argument; there are {', '.join(arguments)}")
    if name in ("batch", "prefix") and not set(dimensions).intersection(results):
        raise UsageError(f"{name}: it names no result; there are {', '.join(results)}")


def _read(text: str) -> Claim:
    name, _, rest = text.partition(":")
    dimensions = {}
    for one in filter(None, rest.split(",")):
        key, _, number = one.partition("=")
        try:
            dimensions[key.strip()] = int(number)
        except ValueError:
            raise UsageError(f"{text!r}: {one!r} is not understood; write NAME=DIMENSION, as in {_EXAMPLE}") from None
    return name.strip(), dimensions


def _dimensions_of(name: str, given: Any) -> dict[str, int]:
    if given is True:
        return {}
    if not isinstance(given, Mapping) or not all(type(dim) is int for dim in given.values()):
        raise UsageError(f"{name}: {given!r} is not understood; give dimensions by name, such as {{'x': 0}}, or True")
    return dict(given)
