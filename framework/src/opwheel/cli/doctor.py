"""``doctor``: what is installed, what works, what does not and how to fix it."""

from __future__ import annotations

import json
import platform
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .._version import __version__
from ..registry import BackendStatus, State
from . import deep

if TYPE_CHECKING:
    from .. import Library

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
        bool, typer.Option("--deep", help="Open every backend's libraries in a process of its own first.")
    ] = False,
) -> None:
    """Show every backend: its state, the reason, the fix."""
    # With --deep, what ends a process must not end this one, and a lock that does not fit is reported, not obeyed.
    library: Library = context.obj.open(load_backends=not try_all, check_lock=not try_all)
    statuses = deep.statuses(library) if try_all else library.backends()
    # Alone, a backend says nothing about the choice between several.
    runtimes = library.runtimes()
    report = {**_report(library, statuses, runtimes), **({"digest": None} if try_all else {})}
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _print(report, [*statuses.values(), *runtimes.values()])
    raise typer.Exit(0 if report["ok"] else 1)


def _report(library: Library, statuses: dict[str, BackendStatus], runtimes: dict[str, BackendStatus]) -> dict[str, Any]:
    """The report; its keys are documented in docs/commands.md."""
    import torch

    failed = [s for s in (*statuses.values(), *runtimes.values()) if s.is_failure]
    loaded = [s for s in statuses.values() if s.state is State.LOADED]
    return {
        "ok": bool(loaded) and not failed and not library.findings,
        "library": library.namespace,
        "distribution": library.distribution,
        "version": library.version,
        "opwheel": __version__,
        "abi": library.abi,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "digest": library.digest(),
        "backends": {name: status.as_json() for name, status in statuses.items()},
        "runtimes": {name: status.as_json() for name, status in runtimes.items()},
        "not_installed": {
            known.name: known.hint
            for installed, installable in ((statuses, library.policy.backends), (runtimes, library.policy.runtimes))
            for known in installable.values()
            if known.name not in installed
        },
        "findings": [finding._asdict() for finding in library.findings],
    }


def _print(report: dict[str, Any], statuses: list[BackendStatus]) -> None:
    console = Console(soft_wrap=not sys.stdout.isatty())
    console.print(
        f"{report['distribution']} {report['version']} (ABI {report['abi']}), opwheel {report['opwheel']}, "
        f"torch {report['torch']}, Python {report['python']}, {report['platform']}",
        highlight=False,
    )
    table = Table("backend", "state", "key", "distribution", "operators", "load", box=None, pad_edge=False)
    for status in statuses:
        table.add_row(
            status.name,
            f"[{_STYLES[status.state]}]{status.state}[/]",
            status.dispatch_key,
            f"{status.distribution} {status.version}",
            str(len(status.operators)) if status.state in (State.LOADED, State.INSTALLED) else "",
            f"{status.load_ms:.1f} ms" if status.state is State.LOADED else "",
        )
    console.print(table if statuses else "no backend is installed")
    for status in statuses:
        if status.reason:
            code = f" [{status.code}]" if status.code else ""
            console.print(f"\n{status.name}: {status.reason}{code}", markup=False, highlight=False)
        if status.fix:
            console.print(f"  fix: {status.fix}", markup=False, highlight=False)
    for name, hint in report["not_installed"].items():
        console.print(f"\n{name}: not installed\n  to install: {hint}", markup=False, highlight=False)
    for finding in report["findings"]:
        console.print(f"\n{finding['message']} [{finding['code']}]", markup=False, highlight=False)
        console.print(f"  fix: {finding['fix']}", markup=False, highlight=False)
