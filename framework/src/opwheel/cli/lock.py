"""``muladd lock``: write down which wheels and backends are in force, or compare with what was written down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import muladd
from opwheel.registry import Finding, LockError


def lock(
    file: Annotated[Path, typer.Argument(help="The lock file.")] = Path("muladd.lock"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; name every difference.")] = False,
) -> None:
    """Lock the installation: with MULADD_LOCK=FILE, import muladd fails on any difference."""
    try:
        found = _compare(file) if check else _write(file)
    except LockError as error:
        print(f"muladd: {error}")
        raise typer.Exit(1) from None
    raise typer.Exit(1 if found else 0)


def _compare(file: Path) -> list[Finding]:
    found = muladd.library.compare(str(file))
    print(f"{file}: no difference" if not found else "\n  ".join([f"{file}:", *(finding.message for finding in found)]))
    return found


def _write(file: Path) -> list[Finding]:
    snapshot = muladd.library.snapshot()
    try:
        file.write_text(snapshot.as_text(muladd.library.namespace))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from None
    print(f"{file}: {_contents(snapshot.distributions, snapshot.winners)}")
    return []


def _contents(distributions: dict[str, dict[str, str]], winners: dict[str, dict[str, str]]) -> str:
    wheels = ", ".join(f"{name} {wheel['version']}" for name, wheel in distributions.items())
    keys = "; ".join(f"{key}: {', '.join(sorted(set(chosen.values())))}" for key, chosen in winners.items())
    return f"locked {wheels}; winners: {keys or 'none'}"
