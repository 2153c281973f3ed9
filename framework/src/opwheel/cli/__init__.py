"""The commands, one module each: ``waves doctor`` of a library, ``opwheel --library waves doctor`` of any.

Exit codes: 0 no problem, 1 a finding, 2 wrong usage. Nothing here imports a library before its command runs.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated

import typer

from .. import standard_output
from .audit import audit
from .bench import bench
from .check import check
from .config import config
from .doctor import doctor
from .explain import explain
from .lock import lock
from .new import new_backend, new_library
from .target import Target
from .version import version

_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
_OF_A_LIBRARY = (doctor, explain, check, bench, config, lock, new_backend)
_Version = Annotated[bool, typer.Option("--version", help="Print versions.")]


def make_app(library: str | None = None) -> typer.Typer:
    """The commands of a library, given its module; without one, those of the script ``opwheel``."""
    target = Target(library)
    app = typer.Typer(
        name=library or "opwheel",
        help=f"Inspect and test the operator library {library}."
        if library
        else "Create, inspect and test operator libraries.",
        context_settings={"help_option_names": ["-h", "--help"], "obj": target},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_options if library else _options_with_library)
    for command in _OF_A_LIBRARY if library else (*_OF_A_LIBRARY, audit, new_library):
        app.command()(command)
    return app


def main(library: str | None = None) -> None:
    """Run the command line of a library, given its module, or of ``opwheel``."""
    standard_output.restore()  # ``python -m waves`` has diverted it
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has all characters
    name = library or "opwheel"
    try:
        try:
            make_app(library)(prog_name=name)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _NOT_WRITTEN:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where Python writes the rest when it ends
        if error.errno != errno.EPIPE:  # whoever reads it may have seen enough
            print(f"{name}: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _options(context: typer.Context, *, show_version: _Version = False) -> None:
    if show_version:
        print(version(context.obj))
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def _options_with_library(
    context: typer.Context,
    *,
    library: Annotated[str | None, typer.Option(metavar="MODULE", help="The operator library to use.")] = None,
    show_version: _Version = False,
) -> None:
    context.obj.module = library
    _options(context, show_version=show_version)
