"""``lock``: write down which wheels and backends are in force, or compare with what was written down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..printable import printable
from ..registry import Finding, LockError

if TYPE_CHECKING:
    from .. import Library


def lock(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The lock file; by default LIBRARY.lock.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; name every difference.")] = False,
) -> None:
    """Record the installed wheels and the chosen backends.

    Where <LIBRARY>_LOCK names the file, importing the library fails on any difference.
    """
    # What is locked already need not be what is installed.
    library: Library = context.obj.open(check_lock=False)
    file = file or Path(f"{library.namespace}.lock")
    try:
        found = _compare(library, file) if check else _write(library, file)
    except LockError as error:
        print(f"{library.namespace}: {error}")
        raise typer.Exit(1) from None
    raise typer.Exit(1 if found else 0)


def _compare(library: Library, file: Path) -> list[Finding]:
    found = library.compare(str(file))
    told = "\n  ".join([f"{file}:", *(finding.message for finding in found)]) if found else f"{file}: no difference"
    print(printable(told))
    return found


def _write(library: Library, file: Path) -> list[Finding]:
    snapshot = library.snapshot()
    try:
        file.write_text(snapshot.as_text(library.namespace))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from None
    print(printable(f"{file}: {_contents(snapshot.distributions, snapshot.winners)}"))
    return []


def _contents(distributions: dict[str, dict[str, str]], winners: dict[str, dict[str, str]]) -> str:
    wheels = ", ".join(f"{name} {wheel['version']}" for name, wheel in distributions.items())
    keys = "; ".join(f"{key}: {', '.join(sorted(set(chosen.values())))}" for key, chosen in winners.items())
    return f"locked {wheels}; winners: {keys or 'none'}"
