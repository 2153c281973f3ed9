"""``lock``: write down which wheels and backends are in force, or compare with what was written down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..registry import LockError

if TYPE_CHECKING:
    from .. import Library


def lock(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The lock file; by default LIBRARY.lock.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; name every difference.")] = False,
) -> None:
    """Write down which wheels and backends are in force.

    Where <LIBRARY>_LOCK names the file, importing the library fails on any difference.
    """
    # Not at the top: nothing else needs it.
    from ..registry.lock import differences, read_lock

    # What is locked already need not be what is installed.
    library: Library = context.obj.open(check_lock=False)
    file = file or Path(f"{library.namespace}.lock")
    try:
        snapshot = library.snapshot()
        found = list(differences(read_lock(file, library.namespace), snapshot)) if check else []
        if not check:
            file.write_text(snapshot.as_text(library.namespace))
    except LockError as error:
        print(f"{library.namespace}: {error}")
        raise typer.Exit(1) from None
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from None
    print(f"{file}: {_summary(found) if check else _contents(snapshot.distributions, snapshot.winners)}")
    raise typer.Exit(1 if found else 0)


def _summary(found: list[str]) -> str:
    return "".join(f"\n  {difference}" for difference in found) or "no difference"


def _contents(distributions: dict[str, dict[str, str]], winners: dict[str, dict[str, str]]) -> str:
    wheels = ", ".join(f"{name} {wheel['version']}" for name, wheel in distributions.items())
    keys = "; ".join(f"{key}: {', '.join(sorted(set(chosen.values())))}" for key, chosen in winners.items())
    return f"locked {wheels}; winners: {keys or 'none'}"
