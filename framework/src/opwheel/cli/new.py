"""``muladd new-backend`` and ``muladd new-library``: projects to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import muladd
from muladd import scaffold

Output = Annotated[Path | None, typer.Option(help="The folder to write; by default one named after the project.")]


def new_backend(
    name: Annotated[str, typer.Argument(help="The backend's name, such as acme; the wheel is muladd-acme.")],
    language: Annotated[str, typer.Option(help=", ".join(scaffold.LANGUAGES))] = "cpp",
    device_type: Annotated[
        str | None, typer.Option(help="torch.device.type of its tensors; by default what the language is for.")
    ] = None,
    output: Output = None,
) -> None:
    """Write the project of a backend: it builds, is discovered and passes the conformance kit as it is."""
    try:
        project = scaffold.new_backend(
            muladd.library, muladd.__version__, name, language=language, device_type=device_type, output=output
        )
    except scaffold.ScaffoldError as error:
        raise typer.BadParameter(str(error)) from None
    _report(project)
    _next_steps(
        project,
        ("pip install --no-build-isolation .", "builds and installs it; torch, setuptools and ninja must be there"),
        ("muladd doctor", f"shows {name}"),
        ("pytest", "runs the conformance kit, some minutes"),
    )


def new_library(
    name: Annotated[str, typer.Argument(help="The library's name and namespace, such as waves.")], output: Output = None
) -> None:
    """Write another operator library in this shape: a core wheel, a wheel for the CPU, and its conformance tests."""
    try:
        project = scaffold.new_library(name, muladd.__version__, output=output)
    except scaffold.ScaffoldError as error:
        raise typer.BadParameter(str(error)) from None
    _report(project)
    _next_steps(
        project,
        ("pip install --no-build-isolation ./core", "schemas, derivatives, shapes"),
        ("pip install --no-build-isolation ./backends/cpu", "kernels"),
        (f"python -m {name} doctor", "shows the backend cpu"),
        ("pytest", "runs the conformance kit, some minutes"),
    )


def _report(project: scaffold.Project) -> None:
    for file in project.files:
        print(f"  {file}")
    print(f"wrote {len(project.files)} files into {project.folder}")


def _next_steps(project: scaffold.Project, *steps: tuple[str, str]) -> None:
    width = max(len(command) for command, _ in steps)
    print(f"\nNext, in an environment with torch:\n  cd {project.folder}")
    for command, purpose in steps:
        print(f"  {command:<{width}}  # {purpose}")
