"""Finds kernels for runtimes that are not PyTorch's dispatcher, such as ExecuTorch, and says whether they could run.

Their libraries are never opened here. They claim no dispatch key, so there is nothing to choose between; a program of
that runtime opens them (docs/decisions/0008-runtimes.md).
"""

from __future__ import annotations

from ..text import describe_exception, describe_failure
from .backend import Runtime
from .discovery import FoundPlugin, PluginError, find_plugins, read_plugin
from .elf import check_complete
from .loading import LoadError, check_requirement, complete_library
from .status import BackendStatus, Finding, State
from .statuses import fix_of, with_hiding


def find_runtimes(group: str) -> tuple[dict[str, BackendStatus], list[Finding]]:
    """The state of every installed runtime by name, and what is wrong with the metadata of distributions."""
    plugins, findings = find_plugins(group)
    return {
        plugin.name: with_hiding(_status(plugin), plugin)
        for plugin in sorted(plugins, key=lambda p: (p.name, p.distribution))
    }, findings


def _status(plugin: FoundPlugin) -> BackendStatus:
    status = BackendStatus(plugin.name, State.INSTALLED, distribution=plugin.distribution, version=plugin.version)
    broken = status._replace(state=State.BROKEN)
    try:
        runtime = read_plugin(plugin, "opwheel_runtime", Runtime)
    except PluginError as error:
        cause = error if error.__cause__ is None else error.__cause__
        fix = fix_of(plugin, error.code, error.fix)
        return broken._replace(code=error.code, reason=describe_failure(error), fix=fix, exception=cause)
    status = status._replace(operators=tuple(runtime.operators), library=runtime.library)
    try:
        for requirement in runtime.requires:
            check_requirement(requirement)
        check_complete(runtime.library)
    except LoadError as error:
        fix = fix_of(plugin, error.code, error.fix) if error.code == "OPWHEEL-E022" else error.fix
        return status._replace(state=State.INCOMPATIBLE, code=error.code, reason=str(error), fix=fix)
    except OSError as error:
        reason = f"its library cannot be read: {describe_exception(error)}"
        fix = fix_of(plugin, "OPWHEEL-E050", complete_library("library", runtime.library))
        return broken._replace(code="OPWHEEL-E050", reason=reason, fix=fix, exception=error)
    return status
