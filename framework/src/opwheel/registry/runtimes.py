"""Kernels for runtimes that are not PyTorch's dispatcher, such as ExecuTorch: found and looked at, never opened here.

They claim no dispatch key, so that there is nothing to choose between and nothing to load: a program of that runtime
does (docs/decisions/0008-runtimes.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .discovery import FoundPlugin, find_plugins
from .elf import check_complete
from .errors import InvalidBackendError
from .loading import LoadError, check_requirement
from .status import BackendStatus, Finding, State, describe_exception, describe_value
from .values import is_a, sequence_of, take_fields, take_name, take_path, take_record, take_text


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
        take_fields(self, _FIELDS, "OPWHEEL-E022", "Runtime")


_FIELDS = {
    "name": take_name,
    "library": take_path,
    "operators": sequence_of(take_name, "names of operators"),
    "requires": sequence_of(take_text, "texts"),
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
        given = plugin.entry_point.load()
        if not is_a(given, Runtime):
            raise InvalidBackendError("OPWHEEL-E022", f"it is {describe_value(given)}, expected a Runtime")
        runtime = take_record(Runtime, given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a plugin raises stays with the plugin
        is_invalid = is_a(error, InvalidBackendError)
        reason = f"{'reading' if is_invalid else 'importing'} {plugin.entry_point.value} failed: "
        return broken._replace(
            code="OPWHEEL-E022" if is_invalid else "OPWHEEL-E020",
            reason=reason + describe_exception(error),
            fix=f"report it to the author of {plugin.distribution}" if is_invalid else broken.fix,
            exception=error,
        )
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
