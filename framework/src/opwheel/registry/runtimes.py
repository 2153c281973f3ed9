"""Kernels for runtimes that are not PyTorch's dispatcher, such as ExecuTorch: found and looked at, never opened here.

They claim no dispatch key, so that there is nothing to choose between and nothing to load: a program of that runtime
does (docs/decisions/0008-runtimes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .backend import is_sequence_of_text, is_text
from .discovery import FoundPlugin, find_plugins
from .elf import check_complete
from .errors import InvalidBackendError
from .loading import LoadError, check_requirement
from .status import BackendStatus, Finding, State, describe_exception, describe_value


@dataclass(eq=False)
class Runtime:
    """What the entry point of a runtime's wheel in the group ``<namespace>.runtimes`` names.

    Args:
        name: the entry point's name: ``"executorch"``.
        library: absolute path of the shared library with the kernels.
        operators: names of the schemas covered.
        requires: requirement specifiers of installed packages.

    Raises:
        InvalidBackendError: a field has the wrong type.
    """

    name: str
    library: Path
    operators: Sequence[str]
    requires: Sequence[str] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _CHECKS[field.name](value):
                problem = f"Runtime: field {field.name} is {describe_value(value)}, expected {field.type}"
                raise InvalidBackendError("OPWHEEL-E022", problem)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "name": is_text,
    "library": lambda value: isinstance(value, Path) and value.is_absolute(),
    "operators": is_sequence_of_text,
    "requires": is_sequence_of_text,
}


def find_runtimes(group: str) -> tuple[dict[str, BackendStatus], list[Finding]]:
    """The state of every installed runtime by name, and what is wrong with the metadata of distributions."""
    plugins, findings = find_plugins(group)
    return {
        plugin.name: _status(plugin) for plugin in sorted(plugins, key=lambda p: (p.name, p.distribution))
    }, findings


def _status(plugin: FoundPlugin) -> BackendStatus:
    status = BackendStatus(plugin.name, State.INSTALLED, distribution=plugin.distribution, version=plugin.version)
    broken = status._replace(state=State.BROKEN, fix=f"pip install --force-reinstall {plugin.distribution}")
    try:
        runtime = plugin.entry_point.load()
        if not isinstance(runtime, Runtime):
            problem = f"{plugin.entry_point.value} is {describe_value(runtime)}, expected a Runtime"
            raise InvalidBackendError("OPWHEEL-E022", problem)
    except KeyboardInterrupt:
        raise
    except InvalidBackendError as error:
        fix = f"report it to the author of {plugin.distribution}"
        return broken._replace(code=error.code, reason=error.message, fix=fix, exception=error)
    except BaseException as error:  # whatever a plugin raises stays with the plugin
        reason = f"importing {plugin.entry_point.value} failed: {describe_exception(error)}"
        return broken._replace(code="OPWHEEL-E020", reason=reason, exception=error)
    try:
        for requirement in runtime.requires:
            check_requirement(requirement)
        check_complete(runtime.library)
    except LoadError as error:
        status = status._replace(state=State.INCOMPATIBLE, code=error.code, reason=str(error), fix=error.fix)
    except OSError as error:
        reason = f"its library cannot be read: {describe_exception(error)}"
        status = broken._replace(code="OPWHEEL-E050", reason=reason, exception=error)
    return status._replace(operators=tuple(runtime.operators), library=runtime.library)
