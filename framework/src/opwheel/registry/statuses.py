"""Keeps the state of every backend, and tells the user once what went wrong."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from ..text import describe_failure, printable
from .backend import Backend
from .discovery import FoundPlugin
from .errors import RegistryError
from .policy import Policy
from .status import BackendStatus, Finding, State
from .trace import Tracer

PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"

# What may be wrong with the installation, and not with the plugin.
_MAY_BE_DAMAGED = ("OPWHEEL-E020", "OPWHEEL-E050")


class Statuses:
    """The status of each backend by its name, and the findings that belong to no single backend."""

    def __init__(self, namespace: str, policy: Policy, trace: Tracer) -> None:
        self.by_name: dict[str, BackendStatus] = {}
        self.findings: list[Finding] = list(policy.findings)
        self._namespace = namespace
        self._policy = policy
        self._trace = trace
        self._reported: set[str] = set()

    def record(
        self, plugin: FoundPlugin, state: State, *, backend: Backend | None = None, name: str = "", **details: Any
    ) -> None:
        """Write down a status; what neither plugin nor backend says comes from plugins.toml."""
        known = self._policy.backends.get(plugin.name)
        status = BackendStatus(
            name=name or plugin.name,
            state=state,
            distribution=plugin.distribution,
            version=plugin.version,
            dispatch_key=backend.dispatch_key if backend else known.dispatch_key if known else "",
            device_type=backend.device_type if backend else known.device if known else "",
            not_invariant=tuple(backend.not_invariant.items()) if backend else (),
            library=backend.libraries[0] if backend and backend.libraries else None,
        )
        status = status._replace(**details)
        self.by_name[status.name] = status = with_hiding(status, plugin)
        self._log(status)

    def fail(
        self,
        plugin: FoundPlugin,
        backend: Backend | None,
        error: Exception,
        *,
        code: str,
        fix: str,
        others: str = "",
        consequence: str = "",
    ) -> None:
        """Record a broken backend. The reason ends with the original exception, which is kept.

        Args:
            plugin: whose.
            backend: what it has described, if it got so far.
            error: what failed.
            code: of the failure.
            fix: what the plugin's author changes.
            others: what everybody else does, if that is not the usual.
            consequence: what became of what the plugin had registered.
        """
        self.record(
            plugin,
            State.BROKEN,
            backend=backend,
            code=code,
            reason=describe_failure(error) + consequence,
            fix=fix_of(plugin, code, fix, others=others, strict=f"{self._namespace.upper()}_STRICT=1"),
            exception=error if error.__cause__ is None else error.__cause__,
        )

    def lose(self, name: str, operators: set[str], culprit: str) -> None:
        """Record that a broken backend has replaced kernels of a loaded one, and cannot be removed."""
        status = self.by_name[name]
        lost = sorted(operators & set(status.operators))
        self.by_name[name] = status = status._replace(
            operators=tuple(sorted(set(status.operators) - set(lost))),
            missing=tuple(sorted({*status.missing, *lost})),
            code="OPWHEEL-E054",
            reason=f"{culprit!r} replaced its kernels for {', '.join(lost)}",
            fix=f"uninstall or disable {culprit!r}, then restart the process",
        )
        self._log(status)

    def report(self) -> None:
        """One warning for each thing that went wrong and was not reported before, or an error with STRICT.

        Raises:
            RegistryError: only with STRICT, for the first of them.
        """
        failed = [status for _, status in sorted(self.by_name.items()) if status.is_failure]
        problems: list[BackendStatus | Finding] = [*self.findings, *failed]
        fresh = [problem for problem in problems if describe(problem) not in self._reported]
        for problem in fresh:
            self._reported.add(describe(problem))
            if isinstance(problem, Finding):
                self._trace("finding", problem, logging.INFO, code=problem.code)
            if self._policy.strict:
                cause = problem.exception if isinstance(problem, BackendStatus) else None
                raise RegistryError(problem.code, describe(problem)) from cause
            _warn(f"{self._namespace}: {describe(problem)}", self._namespace)

    def _log(self, status: BackendStatus) -> None:
        """What became of a backend."""
        state = str(status.state)
        text = f"{status.name} {status.reason}".strip()
        self._trace(state, text, logging.INFO, backend=status.name, state=state, code=status.code)


def with_hiding(status: BackendStatus, plugin: FoundPlugin) -> BackendStatus:
    """The status of a plugin that failed, with the true reason if its package is not the one that is installed."""
    if status.state not in (State.BROKEN, State.INCOMPATIBLE):
        return status
    from .hiding import find_hiding

    hiding = find_hiding(plugin.module.partition(".")[0], plugin.distribution)
    return status._replace(reason=f"{status.reason}; {hiding.reason}", fix=hiding.fix) if hiding else status


def fix_of(plugin: FoundPlugin, code: str, fix: str, *, others: str = "", strict: str = "") -> str:
    """What to do about a broken plugin: first for its author, then for everybody else.

    Args:
        plugin: which.
        code: of the failure.
        fix: what the author changes.
        others: what everybody else does, if that is not the usual.
        strict: the setting with which the failure is raised.
    """
    usual = (
        f"reinstall {plugin.distribution}, or uninstall it"
        if code in _MAY_BE_DAMAGED
        else f"disable {plugin.name!r} in plugins.toml or uninstall {plugin.distribution}, and tell its author"
    )
    traceback = f" ({strict} shows the traceback)" if strict else ""
    return f"in the plugin, {fix}{traceback}; if it is not yours, {others or usual}"


def describe(problem: BackendStatus | Finding) -> str:
    """What is wrong and how to fix it, in a sentence that can be shown."""
    if isinstance(problem, Finding):
        return str(problem)
    origin = f"{problem.distribution} {problem.version}"
    text = f"the backend {problem.name!r} ({origin}) is {problem.state}"
    text += f": {problem.reason}" if problem.reason else ""
    text += f" [{problem.code}]" if problem.code else ""
    return printable(f"{text}; to fix it: {problem.fix}" if problem.fix else text)


def _warn(message: str, package: str) -> None:
    """Attribute the warning to whoever imported or called the library: how near that is depends on what loaded it."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and (frame.f_code.co_filename.startswith(PACKAGE) or _is_in(package, frame)):
        level += 1
        frame = frame.f_back
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def _is_in(package: str, frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == package
