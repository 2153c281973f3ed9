"""What is audited: a package, a shared library, an exported kernel, or a namespace that a package registers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple

from .. import hub


class TargetError(Exception):
    """There is nothing to audit."""

    code = "OPWHEEL-E091"


class Target(NamedTuple):
    """What is audited.

    Args:
        name: an installed module, the path of a shared library, the folder of a kernel, or a namespace.
        imports: modules to import first; those that register a namespace's operators.
    """

    name: str
    imports: tuple[str, ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether it is a shared library."""
        return self.name.endswith(".so")

    @property
    def package(self) -> str:
        """The name in ``sys.modules`` of what was loaded, if it is a package."""
        return hub.load(self.name).__name__ if hub.is_kernel(self.name) else self.name

    def load(self) -> list[str]:
        """Load the library into this process and give the names of its operators, those of the dispatcher.

        A module's are those of the namespace of its name, and those that are registered while its own code runs, or its
        submodules'; not those of what it imports, nor those that a framework registers for it from files of its own.

        Raises:
            TargetError: there is no such module, file or namespace, it registers no operator, or it is a kernel and the
            package kernels is not installed or has no variant of it for this system.
        """
        from opwheel._torch.private import operators_of

        from .registrations import noted

        sys.path.insert(0, "")  # as python -m has it; a module may lie in the current folder
        for module in self.imports:
            importlib.import_module(module)
        with noted() as owners:
            self._load()
        package = self.package
        registered = [name for name, owner in owners.items() if self._has(package, name, owner)]
        found = sorted({*operators_of(package), *registered})
        if not found:
            others = ", ".join(sorted({f"{name.partition('::')[0]} ({owner})" for name, owner in owners.items()}))
            elsewhere = f"; what it imports registers the namespaces {others}" if others else ""
            raise TargetError(
                f"{self.name} is neither a module nor a shared library that registers operators{elsewhere}"
            )
        return found

    def _load(self) -> None:
        if self.is_file:
            if not Path(self.name).is_file():
                raise TargetError(f"there is no file {self.name}")
            import torch

            torch.ops.load_library(str(Path(self.name).resolve()))
        elif hub.is_kernel(self.name):
            try:
                hub.load(self.name)
            except ImportError as error:
                raise TargetError(str(error)) from error
        elif self._is_module():
            importlib.import_module(self.name)

    def _has(self, package: str, operator: str, owner: str) -> bool:
        """Whether an operator that was registered while a module's code ran is the library's."""
        if self.is_file:
            return True
        if owner != package and not owner.startswith(f"{package}."):
            return False
        from .listing import describe

        own = (sys.modules[name].__file__ for name in (package, "torch"))  # torch.library's decorators
        folders = [Path(file).parent for file in own if file]
        places = {Path(place.rpartition(":")[0]) for place in describe(operator).kernels.values()}
        return all(place.suffix != ".py" or any(folder in place.parents for folder in folders) for place in places)

    def statements(self) -> list[str]:
        """Python that loads it."""
        modules = [*self.imports, *([self.name] if not self.is_file and self._is_module() else [])]
        loading = [f"torch.ops.load_library({str(Path(self.name).resolve())!r})"] if self.is_file else []
        loading += hub.statements(self.name) if hub.is_kernel(self.name) else []
        return [*(f"import {module}" for module in modules if module != "torch"), *loading]

    def _is_module(self) -> bool:
        try:
            return importlib.util.find_spec(self.name) is not None
        except (ImportError, ValueError):
            return False
