"""The command ``muladd``, one module a subcommand. Exit codes: 0 all is well, 1 a finding, 2 wrong usage."""

from __future__ import annotations

import io
import sys

import typer

from .bench import bench
from .check import check
from .config import config
from .doctor import doctor
from .explain import explain
from .lock import lock
from .new import new_backend, new_library

app = typer.Typer(
    name="muladd",
    help="Look into muladd's installation: backends, kernels, speed, build flags.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(doctor)
app.command()(explain)
app.command()(check)
app.command()(bench)
app.command()(config)
app.command()(lock)
app.command()(new_backend)
app.command()(new_library)


def main() -> None:
    """Entry point of the console script and of ``python -m muladd``."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has all characters
    app(prog_name="muladd")
