"""``doctor``: what is installed, what works, what does not and how to fix it."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from .. import _huge_pages as huge_pages
from .._version import __version__
from ..registry import BackendStatus, Finding, LockError, State
from ..registry.absence import find_absence
from ..registry.set_aside import set_aside
from ..standard_output import diverted
from . import deep
from .console import TextConsole, cell
from .suggest import suggest

if TYPE_CHECKING:
    from .. import Library

FORMAT = 1  # of the report: raised when a key goes or changes its meaning, not when one is added
_PIPE_WIDTH = 200  # columns where the output goes into a file
_STYLES = {
    State.LOADED: "green",
    State.INSTALLED: "green",
    State.UNSUPPORTED: "yellow",
    State.DISABLED: "yellow",
    State.SHADOWED: "yellow",
    State.INCOMPATIBLE: "red",
    State.BROKEN: "red",
}


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    try_all: Annotated[
        bool, typer.Option("--deep", help="First open each backend's libraries in a separate process.")
    ] = False,
    install: Annotated[
        bool,
        typer.Option("--suggest", help="Print only the command that installs what fits this machine."),
    ] = False,
) -> None:
    """Show every backend: its state, the reason, the fix."""
    if install:
        suggest(context.obj.open(check_lock=False))
        raise typer.Exit
    # With --deep, what ends a process must not end this one. A lock that does not fit is reported, not obeyed.
    library: Library = context.obj.open(load_backends=not try_all, check_lock=False)
    from .requirements import contradictions  # imports torch, which nothing that fails early waits for

    with diverted():
        statuses = deep.statuses(library) if try_all else library.backends()
        # Alone, a backend says nothing about the choice between several.
        runtimes = library.runtimes()
        concerned = {"opwheel", library.distribution}
        installed = (*statuses.values(), *runtimes.values())
        concerned |= {one.distribution for one in installed if one.state is not State.DISABLED}
        findings = [
            *library.findings,
            *_lock_findings(library, winners=not try_all),
            *contradictions(concerned),
        ]
        report = {**_report(library, statuses, runtimes, findings), **({"digest": None} if try_all else {})}
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _print(report, [*statuses.values(), *runtimes.values()])
    raise typer.Exit(0 if report["ok"] else 1)


def _lock_findings(library: Library, *, winners: bool) -> list[Finding]:
    """Why an import of the library fails with the lock file that the environment names; nothing if it does not."""
    file = set_aside.get(f"{library.prefix}_LOCK")
    if file is None:
        return []
    try:
        return library.compare(file, winners=winners)
    except LockError as error:
        return [Finding(error.code, error.message, f"correct or unset {library.prefix}_LOCK")]


def _report(
    library: Library,
    statuses: dict[str, BackendStatus],
    runtimes: dict[str, BackendStatus],
    findings: list[Finding],
) -> dict[str, Any]:
    """The report; doctor.schema.json beside this file describes it, docs/commands.md explains it."""
    import torch

    from .. import result_cache  # imports torch, too

    failed = [s for s in (*statuses.values(), *runtimes.values()) if s.is_failure]
    loaded = [s for s in statuses.values() if s.state is State.LOADED]
    return {
        "format": FORMAT,
        "ok": bool(loaded) and not failed and not findings,
        "library": library.namespace,
        "distribution": library.distribution,
        "version": library.version,
        "opwheel": __version__,
        "abi": library.abi,
        "torch": torch.__version__,
        "autograd": _autograd(library),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "digest": library.digest(),
        "huge_pages": {"policy": library.policy.huge_pages, "system": huge_pages.system_setting()},
        "result_cache": {
            "policy": library.policy.result_cache,
            "limit": result_cache.limit(),
            "description": result_cache.describe(library.policy.result_cache),
        },
        "cpu_capability": library.policy.cpu_capability,
        "check": library.policy.check,
        "backends": {name: status.as_json() for name, status in statuses.items()},
        "runtimes": {name: status.as_json() for name, status in runtimes.items()},
        "not_installed": {
            known.name: find_absence(known.distribution, known.hint).fix
            for installed, installable in ((statuses, library.policy.backends), (runtimes, library.policy.runtimes))
            for known in installable.values()
            if known.name not in installed
        },
        "findings": [finding._asdict() for finding in findings],
    }


def _autograd(library: Library) -> dict[str, Any]:
    """Where derivatives run: ``kind`` is native or python, with the reason, and so is each operator that differs."""
    from ..dispatch.native import why_not
    from ..dispatch.registration import native_autograd_of

    reason = why_not()
    return {
        "kind": "python" if reason else "native",
        "reason": reason,
        "in_python": {} if reason else native_autograd_of(library).refused,
    }


def _print(report: dict[str, Any], statuses: list[BackendStatus]) -> None:
    console = TextConsole()
    if not console.is_terminal:  # programs read it: no row becomes two
        console = TextConsole(soft_wrap=True, width=_PIPE_WIDTH)
    console.say(
        f"{report['distribution']} {report['version']} (ABI {report['abi']}), opwheel {report['opwheel']}, "
        f"torch {report['torch']}, Python {report['python']}, {report['platform']}"
    )
    console.say(huge_pages.describe(report["huge_pages"]["policy"]))
    console.say(report["result_cache"]["description"])
    if report["cpu_capability"] is not None:
        console.say(f"instruction set of CPU kernels: {report['cpu_capability']} at most")
    if report["check"] is not None:
        console.say(f"results of kernels in Python: {'every' if report['check'] else 'no'} call is checked")
    autograd = report["autograd"]
    reason = f" ({autograd['reason']})" if autograd["reason"] else ""
    console.say(f"autograd: {autograd['kind']}{reason}")
    for operator, reason in autograd["in_python"].items():
        console.say(f"  python for {operator}: {reason}")
    table = Table("backend", "state", "key", "distribution", "operators", "load", box=None, pad_edge=False)
    for status in statuses:
        table.add_row(
            cell(status.name),
            cell(str(status.state), _STYLES[status.state]),
            cell(status.dispatch_key),
            cell(f"{status.distribution} {status.version}"),
            str(len(status.operators)) if status.state in (State.LOADED, State.INSTALLED) else "",
            f"{status.load_ms:.1f} ms" if status.state is State.LOADED else "",
        )
    console.print(table if statuses else "no backend is installed")
    for status in statuses:
        if status.by_reference:
            names = ", ".join(status.by_reference)
            console.say(f"\n{status.name}: computed by the reference, for lack of a kernel: {names}")
        if status.reason:
            code = f" [{status.code}]" if status.code else ""
            console.say(f"\n{status.name}: {status.reason}{code}")
        if status.fix:
            console.say(f"  fix: {status.fix}")
    for name, hint in report["not_installed"].items():
        console.say(f"\n{name}: not installed\n  to install: {hint}")
    for finding in report["findings"]:
        console.say(f"\n{finding['message']} [{finding['code']}]")
        console.say(f"  fix: {finding['fix']}")
