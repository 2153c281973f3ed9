"""``muladd doctor``: what is installed, what works, what does not and how to fix it."""

from __future__ import annotations

import json
import platform
from typing import Annotated, Any

import opwheel_cli
import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import muladd
from opwheel.registry import BackendStatus, Finding, LockError, State

from . import deep
from .printable import printable

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
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    try_all: Annotated[
        bool, typer.Option("--deep", help="Open every backend's libraries in a process of its own first.")
    ] = False,
) -> None:
    """Show every installed backend: its state, the reason and the fix."""
    statuses = deep.statuses(muladd.library) if try_all else muladd.backends()
    # Alone, a backend says nothing about the choice between several.
    runtimes = muladd.library.runtimes()
    findings = [*muladd.library.findings, *_lock_findings(winners=not try_all)]
    report = {**_report(statuses, runtimes, findings), **({"digest": None} if try_all else {})}
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        _print(report, [*statuses.values(), *runtimes.values()])
    raise typer.Exit(0 if report["ok"] else 1)


def _lock_findings(*, winners: bool) -> list[Finding]:
    """Why `import muladd` fails with the lock file that the environment names; nothing if it does not."""
    if opwheel_cli.lock_file is None:
        return []
    try:
        return muladd.library.compare(opwheel_cli.lock_file, winners=winners)
    except LockError as error:
        return [Finding(error.code, error.message, "correct or unset MULADD_LOCK")]


def _report(
    statuses: dict[str, BackendStatus], runtimes: dict[str, BackendStatus], findings: list[Finding]
) -> dict[str, Any]:
    """The report; its keys are documented in docs/commands.md."""
    library = muladd.library
    failed = [s for s in (*statuses.values(), *runtimes.values()) if s.is_failure]
    loaded = [s for s in statuses.values() if s.state is State.LOADED]
    return {
        "ok": bool(loaded) and not failed and not findings,
        "muladd": muladd.__version__,
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
        "findings": [finding._asdict() for finding in findings],
    }


def _print(report: dict[str, Any], statuses: list[BackendStatus]) -> None:
    # What plugins and files say is text, whatever brackets and colons it has.
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:  # programs read it: no row becomes two
        console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True, width=_PIPE_WIDTH)
    console.print(
        f"muladd-core {report['muladd']} (ABI {report['abi']}), torch {report['torch']}, Python {report['python']}, "
        f"{report['platform']}"
    )
    table = Table("backend", "state", "key", "distribution", "operators", "load", box=None, pad_edge=False)
    for status in statuses:
        table.add_row(
            Text(printable(status.name)),
            Text(str(status.state), _STYLES[status.state]),
            Text(status.dispatch_key),
            Text(f"{status.distribution} {status.version}"),
            str(len(status.operators)) if status.state in (State.LOADED, State.INSTALLED) else "",
            f"{status.load_ms:.1f} ms" if status.state is State.LOADED else "",
        )
    console.print(table if statuses else "no backend is installed")
    for status in statuses:
        if status.reason:
            code = f" [{status.code}]" if status.code else ""
            console.print(f"\n{printable(status.name)}: {printable(status.reason)}{code}")
        if status.fix:
            console.print(f"  fix: {printable(status.fix)}")
    for name, hint in report["not_installed"].items():
        console.print(f"\n{printable(name)}: not installed\n  to install: {printable(hint)}")
    for finding in report["findings"]:
        console.print(f"\n{printable(finding['message'])} [{finding['code']}]")
        console.print(f"  fix: {printable(finding['fix'])}")
