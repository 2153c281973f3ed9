"""``new-backend`` and ``new-library``: projects to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from opwheel.commands.target import Target

from .. import scaffold

if TYPE_CHECKING:
    from opwheel import Library

Output = Annotated[Path | None, typer.Option(help="The folder to write; by default one named after the project.")]


def new_backend(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The backend's name, such as acme; the wheel is LIBRARY-acme.")],
    language: Annotated[str, typer.Option(help=", ".join(scaffold.LANGUAGES))] = "cpp",
    device_type: Annotated[
        str | None, typer.Option(help="torch.device.type of its tensors; by default the one that the language is for.")
    ] = None,
    library: Annotated[
        str | None, typer.Option(metavar="MODULE", help="The library, if it is not the command's own.")
    ] = None,
    output: Output = None,
) -> None:
    """Write a backend project to start from.

    It builds, is discovered and passes the conformance kit without changes.
    """
    target = Target(library or context.obj.module)
    opened: Library = target.open()
    try:
        project = scaffold.new_backend(opened, name, language=language, device_type=device_type, output=output)
    except (scaffold.ScaffoldError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    _report(project)
    _next_steps(
        project,
        ("pip install --no-build-isolation .", "builds and installs it; torch, setuptools and ninja must be there"),
        (f"{opened.prefix}_BACKENDS={name} {target.module} doctor", f"admits only {name}, so that it is used"),
        ("pytest", "runs the conformance kit on it, which takes some minutes"),
    )


def new_library(
    name: Annotated[str, typer.Argument(help="The library's name and namespace, such as waves.")],
    elementwise: Annotated[
        bool, typer.Option("--elementwise", help="Only an operator that a functor computes.")
    ] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Only an operator with a kernel of its own, over rows.")] = False,
    output: Output = None,
) -> None:
    """Write the projects of an operator library to start from, with an operator of each kind.

    A core wheel, a wheel for the CPU, and tests: they build and pass the conformance kit without changes.
    """
    chosen = [kind for kind, is_chosen in (("elementwise", elementwise), ("rows", rows)) if is_chosen]
    try:
        project = scaffold.new_library(name, kinds=chosen or scaffold.KINDS, output=output)
    except (scaffold.ScaffoldError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    _report(project)
    _next_steps(
        project,
        ("pip install --no-build-isolation ./core", "schemas, derivatives, shapes"),
        ("pip install --no-build-isolation ./backends/cpu", "kernels"),
        (f"{name.replace('-', '_')} doctor", "shows the backend cpu"),
        ("pytest", "runs the conformance kit, which takes some minutes"),
    )


def _report(project: scaffold.Project) -> None:
    for file in project.files:
        print(f"  {file}")
    print(f"wrote {len(project.files)} files into {project.folder}")


def _next_steps(project: scaffold.Project, *steps: tuple[str, str]) -> None:
    width = max(len(command) for command, _ in steps)
    print(f"\nNext, in an environment with torch:\n  cd {shlex.quote(str(project.folder))}")
    for command, purpose in steps:
        print(f"  {command:<{width}}  # {purpose}")
