"""The operator library that a command is about: a name, until the command imports it."""

from __future__ import annotations

import importlib
import os
from itertools import accumulate
from typing import TYPE_CHECKING

import typer

from ..registry import RegistryError, set_aside
from ..standard_output import diverted

if TYPE_CHECKING:
    from .. import Library


class Target:
    """The library by its module's name; None where the script ``opwheel`` was not given one."""

    def __init__(self, module: str | None) -> None:
        self.module = module

    def open(self, *, load_backends: bool = True, check_lock: bool = True) -> Library:
        """Import the library. What is printed meanwhile goes to standard error.

        Args:
            load_backends: otherwise its import opens no backend. One whose library ends the process would end it here.
            check_lock: otherwise the installation need not be what is locked.

        Raises:
            typer.BadParameter: no library was given, or it is not there.
            typer.Exit: it cannot be imported; why, has been printed.
        """
        # Not at the top: it imports torch, which completion and help do without.
        from .. import Library

        if self.module is None:
            raise typer.BadParameter("which library? opwheel --library MODULE COMMAND", param_hint="--library")
        names = self.module.split(".")
        if not all(name.isidentifier() for name in names):
            problem = f"{self.module!r} is not the name of a module, as in 'waves' or 'waves.sub'"
            raise typer.BadParameter(problem, param_hint="--library")
        # This must be known while the library is imported.
        prefix = self.module.rpartition(".")[2].upper()
        if not load_backends:
            set_aside.backends(prefix)
        if not check_lock:
            set_aside.lock(prefix)
        try:
            with diverted():
                library = getattr(importlib.import_module(self.module), "library", None)
        except RegistryError as error:
            if os.environ.get(f"{prefix}_TRACE") == "1":
                raise
            typer.echo(f"{self.module}: {error}", err=True)
            raise typer.Exit(1) from None
        except ModuleNotFoundError as error:
            if error.name not in tuple(accumulate(names, "{}.{}".format)):
                raise
            raise typer.BadParameter(f"there is no module {self.module!r}", param_hint="--library") from None
        if not isinstance(library, Library):
            problem = f"{self.module!r} is not an operator library: it has no opwheel.Library called library"
            raise typer.BadParameter(problem, param_hint="--library")
        return library
