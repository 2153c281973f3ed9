"""What is audited: a package, a shared library, or a namespace of operators that a package registers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple


class TargetError(Exception):
    """There is nothing to audit."""


class Target(NamedTuple):
    """What is audited.

    Args:
        name: an installed module, the path of a shared library, or a namespace.
        imports: modules to import first; those that register a namespace's operators.
    """

    name: str
    imports: tuple[str, ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether it is a shared library."""
        return self.name.endswith(".so")

    def load(self) -> list[str]:
        """Load the library into this process and give the names of its operators, those of the dispatcher.

        Raises:
            TargetError: there is no such module, file or namespace, or it registers no operator.
        """
        from opwheel._torch.private import every_operator, operators_of

        before = set(every_operator())
        sys.path.insert(0, "")  # as python -m has it; a module may lie in the current folder
        for module in self.imports:
            importlib.import_module(module)
        if self.is_file:
            if not Path(self.name).is_file():
                raise TargetError(f"there is no file {self.name}")
            import torch

            torch.ops.load_library(str(Path(self.name).resolve()))
        elif self._is_module():
            importlib.import_module(self.name)
        own = operators_of(self.name)
        found = own or sorted(set(every_operator()) - before)
        if not found:
            raise TargetError(f"{self.name} is neither a module nor a shared library that registers operators")
        return found

    def statements(self) -> list[str]:
        """Python that loads it."""
        modules = [*self.imports, *([self.name] if not self.is_file and self._is_module() else [])]
        loading = [f"torch.ops.load_library({str(Path(self.name).resolve())!r})"] if self.is_file else []
        return [*(f"import {module}" for module in modules if module != "torch"), *loading]

    def _is_module(self) -> bool:
        try:
            return importlib.util.find_spec(self.name) is not None
        except (ImportError, ValueError):
            return False
