"""Say which backend's kernel runs for an operator on a device, and why.

Also which other backends claimed the operator, which rule decided, and a digest of the whole choice.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..registry.status import State
from ..registry.values import INVARIANCES
from ..text import printable
from .target import Target, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .. import Library
    from ..foreign import ForeignStatus
    from ..registry import BackendStatus, Choice


_ANY = "OPERATOR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What and where."""
    parser.add_argument("operator", nargs="?", help="an operator, with its overload: mul or mul.out; all if left out")
    parser.add_argument("device", nargs="?", help="a device type, such as cpu or cuda; all if left out")


def run(given: argparse.Namespace, target: Target) -> int:
    """Print an answer for each device, and for the operators that have the same."""
    library = target.open()
    foreign = [one for one in library.foreign.status() if given.operator in (None, one.operator)]
    if given.operator is not None and foreign:
        _print_foreign(library, foreign)
        return 0
    operators = library.operators if given.operator is None else (given.operator,)
    if given.operator is not None and given.operator not in library.operators:
        names = [*library.operators, *(one.operator for one in library.foreign.status())]
        raise UsageError(f"there is no operator {given.operator!r}; there are {', '.join(names)}")
    known = _devices(library)
    devices = known if given.device is None else [given.device if given.device in known else _type_of(given.device)]
    served = False
    for device_type in devices:
        by_answer: dict[str, list[str]] = {}
        for name in operators:
            choice = library.explain(name, device_type)
            served |= choice.winner is not None
            # Answers that differ in the operator's name alone are one answer.
            answer = _answer(library, choice).replace(f"{library.namespace}::{name} ", f"{library.namespace}::{_ANY} ")
            by_answer.setdefault(answer, []).append(name)
        for answer, names in by_answer.items():
            print(printable(f"{device_type}: {', '.join(names)}"))
            print(printable(answer.replace(_ANY, names[0]) if len(names) == 1 else answer))
    _print_foreign(library, foreign)
    print(f"digest {library.digest()}")
    return 0 if served else 1


def _print_foreign(library: Library, statuses: Iterable[ForeignStatus]) -> None:
    """Which calls of operators of others go to kernels of this library, where these are on."""
    for one in statuses:
        at = f" at {', '.join(one.keys)}" if one.keys else ""
        print(printable(f"{one.operator}: {one.state}{at}; where on, {', '.join(one.uses)} of {library.namespace} if"))
        for condition in one.when:
            print(printable(f"  {condition}"))


def _type_of(device: str) -> str:
    import torch

    try:
        return torch.device(device).type
    except RuntimeError as error:
        raise UsageError(f"DEVICE: {str(error).partition(chr(10))[0]}") from None


def _devices(library: Library) -> list[str]:
    known = {status.device_type for status in library.backends().values()}
    known |= {backend.device for backend in library.policy.backends.values()}
    return sorted(known - {""})


def _answer(library: Library, choice: Choice) -> str:
    winner = choice.winner
    if winner is None:
        lines = [f"  no kernel; a call raises: {library.no_kernel_error(choice.operator, choice.device_type)}"]
    else:
        origin = f"{winner.distribution} {winner.version}"
        lines = [f"  {winner.name} ({origin}) at {choice.dispatch_key}, from {winner.library or 'Python'}"]
        if choice.operator in winner.by_reference:
            lines.append("  its kernel is the operator's reference: correct, but slow")
        lines += _invariances(library, choice)
    lines += [f"  {why}" for why in choice.blocked.values()]
    lines += [f"  not {other.name} ({other.distribution}): {_why_not(choice, other)}" for other in choice.others]
    return "\n".join(lines)


def _invariances(library: Library, choice: Choice) -> list[str]:
    """What the results' bits do not depend on, and what the library claims and is not so here."""
    held = library.invariant(choice.operator, choice.device_type)
    overload = library.overloads[choice.operator]
    claimed = overload.operator.invariant if overload.name == overload.operator.name else {}
    lines = [f"  the same bits whatever: {', '.join(held)}"] if held else []
    if missing := [name for name in INVARIANCES if name in claimed and name not in held]:
        lines.append(f"  claimed by the library, and not kept here: {', '.join(missing)}")
    return lines


def _why_not(choice: Choice, other: BackendStatus) -> str:
    if other.state is not State.LOADED:
        return f"{other.state}, {other.reason}"
    if choice.operator in other.missing:
        return "it claims the operator, but has no kernel"
    return choice.rules.get(other.name, "it does not claim the operator")
