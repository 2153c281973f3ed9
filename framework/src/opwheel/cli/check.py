"""``check``: the conformance kit, for a backend that is installed here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..printable import printable
from ..registry import BackendUnavailableError

if TYPE_CHECKING:
    from .. import Library


def check(
    context: typer.Context,
    backend: Annotated[str, typer.Argument(help="The backend's name, as doctor shows it.")],
    pytest_options: Annotated[list[str] | None, typer.Argument(help="Passed on to pytest, after --.")] = None,
) -> None:
    """Run the conformance kit on a backend.

    Does it compute what the operators promise, in every part of PyTorch?
    """
    library: Library = context.obj.open()
    known = sorted({*library.backends(), *library.policy.backends})
    if backend not in known:
        raise typer.BadParameter(printable(f"there is no backend {backend!r}; known are: {', '.join(known)}"))
    try:
        library.require(backend)
    except BackendUnavailableError as error:
        print(f"{library.namespace}:", *str(error).split())  # on one line, whatever a plugin says
        raise typer.Exit(1) from None
    if not all(importlib.util.find_spec(name) for name in ("pytest", "hypothesis")):
        raise typer.BadParameter("the conformance kit needs more packages: pip install 'opwheel[testing]'")
    # One that does not load in that process fails the check rather than being skipped.
    environment = {**os.environ, f"{library.prefix}_REQUIRE": backend}
    command = [sys.executable, "-m", "pytest", "--pyargs", "opwheel.testing"]
    command += ["--library", library.package, "--backend", backend, *(pytest_options or [])]
    result = subprocess.run(command, env=environment, check=False)
    raise typer.Exit(0 if result.returncode == 0 else 1)
