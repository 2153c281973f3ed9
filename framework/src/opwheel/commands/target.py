"""The operator library that a command is about: a name, until the command imports it."""

from __future__ import annotations

import importlib
import os
import sys
from itertools import accumulate
from typing import TYPE_CHECKING

from ..registry.errors import RegistryError
from . import environment
from .standard_output import diverted

if TYPE_CHECKING:
    from .. import Library


class UsageError(Exception):
    """A command line that cannot be carried out; the text says what to write instead."""

    code = "OPWHEEL-E090"


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
            UsageError: no library was given, or it is not there.
            SystemExit: it cannot be imported; why, has been printed.
        """
        # Not at the top: it imports torch, which help does without.
        from .. import Library

        if self.module is None:
            raise UsageError("which library? opwheel --library MODULE COMMAND")
        names = self.module.split(".")
        if not all(name.isidentifier() for name in names):
            raise UsageError(f"--library: {self.module!r} is not the name of a module, as in 'waves' or 'waves.sub'")
        # This must be known while the library is imported.
        prefix = self.module.rpartition(".")[2].upper()
        if not load_backends:
            environment.open_no_backend(prefix)
        if not check_lock:
            environment.ignore_lock(prefix)
        try:
            with diverted():
                library = getattr(importlib.import_module(self.module), "library", None)
        except RegistryError as error:
            if os.environ.get(f"{prefix}_TRACE") == "1":
                raise
            print(f"{self.module}: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        except ModuleNotFoundError as error:
            if error.name not in tuple(accumulate(names, "{}.{}".format)):
                raise
            raise UsageError(f"--library: there is no module {self.module!r}") from None
        if not isinstance(library, Library):
            raise UsageError(
                f"--library: {self.module!r} is not an operator library: it has no opwheel.Library called library"
            )
        return library
