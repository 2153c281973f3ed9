"""``explain``: which kernel runs for an operator on a device, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .. import Library
    from ..registry import Choice

from .console import TextConsole

_ANY = "OPERATOR"


def explain(
    context: typer.Context,
    operator: Annotated[
        str | None, typer.Argument(help="An operator, with its overload: mul or mul.out; all if left out.")
    ] = None,
    device: Annotated[str | None, typer.Argument(help="A device type, such as cpu or cuda; all if left out.")] = None,
) -> None:
    """Say which backend's kernel runs, and why.

    Also which other backends claimed the operator, which rule decided, and a digest of the whole choice.
    """
    library: Library = context.obj.open()
    operators = library.operators if operator is None else (operator,)
    if operator is not None and operator not in library.operators:
        raise typer.BadParameter(f"there is no operator {operator!r}; there are {', '.join(library.operators)}")
    known = _devices(library)
    devices = known if device is None else [device if device in known else _type_of(device)]
    console = TextConsole(soft_wrap=True)
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
            console.say(f"{device_type}: {', '.join(names)}")
            console.say(answer.replace(_ANY, names[0]) if len(names) == 1 else answer)
    console.say(f"digest {library.digest()}")
    raise typer.Exit(0 if served else 1)


def _type_of(device: str) -> str:
    import torch

    try:
        return torch.device(device).type
    except RuntimeError as error:
        raise typer.BadParameter(str(error).partition("\n")[0], param_hint="DEVICE") from None


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
    lines += [f"  {why}" for why in choice.blocked.values()]
    lines += [f"  not {other.name} ({other.distribution}): {other.state}, {other.reason}" for other in choice.others]
    return "\n".join(lines)
