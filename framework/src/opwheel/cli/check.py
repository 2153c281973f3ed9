"""``muladd check``: the conformance kit, for a backend that is installed here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Annotated

import typer

import muladd
from opwheel.registry import BackendUnavailableError


def check(
    backend: Annotated[str, typer.Argument(help="The backend's name, as doctor shows it.")],
    pytest_options: Annotated[list[str] | None, typer.Argument(help="Handed on to pytest, after --.")] = None,
) -> None:
    """Run the conformance kit: does the backend compute what the operators promise, under all of PyTorch?"""
    known = sorted({*muladd.backends(), *muladd.library.policy.backends})
    if backend not in known:
        raise typer.BadParameter(f"there is no backend {backend!r}; known are: {', '.join(known)}")
    try:
        muladd.require(backend)
    except BackendUnavailableError as error:
        print("muladd:", *str(error).split())  # on one line, whatever a plugin says
        raise typer.Exit(1) from None
    if not all(importlib.util.find_spec(name) for name in ("pytest", "hypothesis")):
        raise typer.BadParameter("the conformance kit needs more packages: pip install 'muladd-core[testing]'")
    # One that does not load in that process fails the check rather than being skipped.
    environment = {**os.environ, "MULADD_REQUIRE": backend}
    command = [sys.executable, "-m", "pytest", "--pyargs", "opwheel.testing", "--backend", backend]
    result = subprocess.run([*command, *(pytest_options or [])], env=environment, check=False)
    raise typer.Exit(0 if result.returncode == 0 else 1)
