"""The commands of authors and judges, which ``opwheel.commands`` finds as entry points.

Each is a function for typer; the entry point is that function in the form that opwheel calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import typer
from opwheel.commands.target import Target, UsageError


class Command(Protocol):
    """What an entry point of the group ``opwheel.commands`` gives: it runs a command line, and says its exit status."""

    def __call__(self, name: str, words: list[str], target: Target) -> int: ...


def _command(module: str, function: str) -> Command:
    def run(name: str, words: list[str], target: Target) -> int:
        app = make_app(name, getattr(import_module(f".{module}", __name__), function))
        try:
            app(words, prog_name=name, obj=target, standalone_mode=True)
        except UsageError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    return run


def make_app(name: str, function: Callable[..., Any]) -> typer.Typer:
    """A program of one command."""
    app = typer.Typer(
        name=name,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.command()(function)
    return app


# Not named like their modules: importing one makes it an attribute of this package, in place of the command.
run_audit = _command("audit", "audit")
run_bench = _command("bench", "bench")
run_check = _command("check", "check")
run_export_kernel = _command("export_kernel", "export_kernel")
run_judge = _command("judge", "judge")
run_new_backend = _command("new", "new_backend")
run_new_library = _command("new", "new_library")
