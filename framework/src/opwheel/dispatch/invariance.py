"""What an operator claims that the bits of its results do not depend on: checks of the claims, and what they are about.

Imported where claims are made or asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..registry.errors import BackendUnavailableError
from ..registry.values import ALL, INVARIANCES
from .rules.rule import refuse

if TYPE_CHECKING:
    from ..registry.status import BackendStatus
    from .overload import Overload

WITH_DIMENSIONS = ("batch", "prefix", "order")
_TENSORS = ("Tensor", "Optional[Tensor]")
_EXAMPLE = 'such as {"x": 0, "result": 0}'


def check(overload: Overload) -> None:
    """Refuse claims that are not understood, or that the operator cannot make.

    Raises:
        ValueError: naming the schema, the claim and what to write instead.
    """
    for name, given in overload.operator.invariant.items():
        claim = f"invariant={{{name!r}: {given!r}}}"
        if name not in INVARIANCES:
            refuse(overload, f"{claim}: there is no such claim", f"there are {', '.join(INVARIANCES)}")
        if overload.is_random:
            refuse(overload, f"{claim}: its results are random", "leave the claim out")
        if name == "grad" and overload.operator.derivatives is None:
            refuse(overload, f"{claim}: it records no gradient (derivatives=None)", "leave the claim out")
        if name not in WITH_DIMENSIONS:
            if given is not True:
                refuse(overload, f"{claim}: expected True", "write True, or leave the claim out")
        elif given is True:
            if name != "batch" or not overload.rule.has_batches:
                problem = f"{claim}: nothing says along which dimensions ({overload.rule!r})"
                refuse(overload, problem, f"give them by argument{_and_result(name)}, {_EXAMPLE}")
        else:
            _check_dimensions(overload, name, claim, given)


def _and_result(name: str) -> str:
    return "" if name == "order" else " and result"


def _check_dimensions(overload: Overload, name: str, claim: str, given: Any) -> None:
    """Refuse what is no dict from names to dimensions, nor a tuple of such dicts."""
    each = alternatives(given)
    if not each or not all(isinstance(one, Mapping) and one for one in each):
        way_out = f"write a dict from arguments{_and_result(name)} to dimensions, {_EXAMPLE}, or a tuple of them"
        refuse(overload, f"{claim} is not understood", way_out)
    kinds = {argument.name: str(argument.real_type) for argument in overload.schema.arguments}
    outputs = {*overload.result_names, *(overload.names[i] for i in overload.written)}
    for one in each:
        for key, value in one.items():
            if key not in kinds and (key not in outputs or name == "order"):
                known = ", ".join([*kinds, *([] if name == "order" else overload.result_names)])
                refuse(overload, f"{claim}: {key!r} is no argument{_and_result(name)}", f"name some of {known}")
            if key in kinds and "List[" in kinds[key] and "Tensor" in kinds[key]:
                refuse(overload, f"{claim}: {key!r} is a list of tensors", "name arguments of one tensor each")
            if value is None and kinds.get(key) == "Optional[Tensor]":
                continue
            is_dimension = key in outputs or kinds[key] in _TENSORS
            if is_dimension and (isinstance(value, bool) or not isinstance(value, int)):
                refuse(overload, f"{claim}: {key!r} is {value!r}", "give the number of a dimension, such as 0")
            if name == "order" and is_dimension and value >= 0:
                problem = f"{claim}: the dimension of {key!r} is counted from the start"
                refuse(overload, problem, "count from the end to the last dimension of the rows, as -2")
        if not any(kinds.get(key) in _TENSORS for key in one):
            refuse(overload, f"{claim}: it names no tensor argument", "name those that have the dimension")
        if name != "order" and not outputs.intersection(one):
            known = ", ".join(sorted(outputs))
            refuse(overload, f"{claim}: it names no result", f"name those that have the dimension, of {known}")


def alternatives(given: Any) -> tuple[Any, ...]:
    """The dicts of dimensions that are declared for one claim."""
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def dimensions(overload: Overload, name: str, values: tuple[Any, ...]) -> list[dict[str, int]]:
    """What a claim with dimensions is about in one call: for each case dimensions by name of argument and result.

    Args:
        overload: of the operator.
        name: of the claim.
        values: of all arguments. Optional tensors that are None are left out, and so are those whose dimension
            has one element, or is counted from the end and not there: these are shared by all. A case with a
            dimension that an argument does not have otherwise, or for another value of an argument, is none of this
            call's.
    """
    given = overload.operator.invariant[name]
    if given is True:
        free: list[dict[str, int]] = overload.rule.batches(overload, values)
        return free
    arguments = dict(zip(overload.names, values, strict=True))
    tensors = {overload.names[i] for i in overload.tensor_positions}
    found = []
    for one in alternatives(given):
        named = [key for key in one if key in tensors and arguments[key] is not None]
        if any(one[key] is None for key in named):
            continue  # the claim is made without the argument
        wanted = {key: value for key, value in one.items() if key in arguments and key not in tensors}
        own = dimensions_of({key: one[key] for key in named}, arguments)
        if own and all(arguments[key] == value for key, value in wanted.items()):
            found.append(own | {key: dim for key, dim in one.items() if key not in arguments})
    return found


def dimensions_of(claimed: Mapping[str, int], arguments: Mapping[str, Any]) -> dict[str, int]:
    """Those of the dimensions, by name of argument, that the tensors of a call have.

    A dimension that has one element, or is counted from the end and not there, is shared by all, and left out. Empty
    where a tensor has not got the dimension otherwise.
    """
    own = {key: dim for key, dim in claimed.items() if dim >= 0 or _has(arguments[key], dim)}
    if not all(_has(arguments[key], dim) for key, dim in own.items()):
        return {}
    return {key: dim for key, dim in own.items() if arguments[key].shape[dim] != 1} or own


def _has(tensor: Tensor, dim: int) -> bool:
    return -tensor.dim() <= dim < tensor.dim()


def held(overload: Overload, status: BackendStatus | None) -> tuple[str, ...]:
    """Names of an operator's claims that hold where a backend serves it: of a reference PyTorch promises nothing."""
    is_variant = overload.name != overload.operator.name
    if status is None or is_variant or overload.name not in status.operators or overload.name in status.by_reference:
        return ()
    less = [claim for name, claims in status.not_invariant if name in (overload.name, ALL) for claim in claims]
    return tuple(name for name in INVARIANCES if name in overload.operator.invariant and name not in less)


def check_required(
    statuses: Sequence[BackendStatus],
    overloads: Mapping[str, Overload],
    invariant: str | Iterable[str] | Mapping[str, Iterable[str]],
) -> None:
    """Check that loaded backends keep claims.

    Args:
        statuses: of the backends.
        overloads: of the library, by name.
        invariant: names of claims, or of operators with names of claims.

    Raises:
        BackendUnavailableError: a backend does not keep one: naming the operators.
        ValueError: there is no such operator, or no such claim.
    """
    for status in statuses:
        for claim, operators in _by_claim(overloads, invariant, status).items():
            missing = [name for name in operators if claim not in held(overloads[name], status)]
            if missing or not operators:
                raise BackendUnavailableError("OPWHEEL-E004", _not_held(overloads, status, claim, missing))


def _by_claim(
    overloads: Mapping[str, Overload], invariant: str | Iterable[str] | Mapping[str, Iterable[str]], status: Any
) -> dict[str, list[str]]:
    """Each claim that is required, with the operators that have to keep it."""
    wanted: dict[str, list[str]] = {}
    if isinstance(invariant, Mapping):
        for name, claims in invariant.items():
            if name not in overloads:
                raise ValueError(f"invariant= names the operator {name!r}; there are {', '.join(overloads)}")
            for claim in (claims,) if isinstance(claims, str) else claims:
                wanted.setdefault(claim, []).append(name)
    else:
        for claim in (invariant,) if isinstance(invariant, str) else invariant:
            served = [name for name in status.operators if name == overloads[name].operator.name]
            wanted[claim] = [name for name in served if claim in overloads[name].operator.invariant]
    if unknown := [claim for claim in wanted if claim not in INVARIANCES]:
        raise ValueError(f"invariant= names the claim {unknown[0]!r}; there are {', '.join(INVARIANCES)}")
    return wanted


def _not_held(overloads: Mapping[str, Overload], status: BackendStatus, claim: str, missing: list[str]) -> str:
    """Which operators do not keep a claim, and why, in a sentence."""
    origin = f"the backend {status.name!r} ({status.distribution} {status.version})"
    if not missing:
        return f"{origin} has no operator for which {claim!r} is claimed; require another claim"
    reasons = "; ".join(f"{name}: {_why_not(overloads[name], status, claim)}" for name in missing)
    return f"{origin} does not keep {claim!r}: {reasons}; require less, or use another backend"


def _why_not(overload: Overload, status: BackendStatus, claim: str) -> str:
    if overload.name not in status.operators:
        return "it does not serve the operator"
    if overload.name in status.by_reference:
        return "computed by the reference"
    if claim not in overload.operator.invariant or overload.name != overload.operator.name:
        return "the library does not claim it"
    return "the backend says so (not_invariant)"
