"""``check``: the conformance kit, for a backend that is installed here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .. import Library


def check(
    context: typer.Context,
    backend: Annotated[str, typer.Argument(help="The backend's name, as doctor shows it.")],
    pytest_options: Annotated[list[str] | None, typer.Argument(help="Handed on to pytest, after --.")] = None,
) -> None:
    """Run the conformance kit on a backend.

    Does it compute what the operators promise, under all of PyTorch?
    """
    library: Library = context.obj.open()
    if backend not in library.backends():
        installed = ", ".join(library.backends()) or "none"
        raise typer.BadParameter(f"no backend {backend!r} is installed; installed are: {installed}")
    if not all(importlib.util.find_spec(name) for name in ("pytest", "hypothesis")):
        raise typer.BadParameter("the conformance kit needs more packages: pip install 'opwheel[testing]'")
    # A backend that is not loaded fails the check rather than being skipped.
    environment = {**os.environ, f"{library.prefix}_REQUIRE": backend}
    command = [sys.executable, "-m", "pytest", "--pyargs", "opwheel.testing"]
    command += ["--library", library.package, "--backend", backend, *(pytest_options or [])]
    result = subprocess.run(command, env=environment, check=False)
    raise typer.Exit(0 if result.returncode == 0 else 1)
