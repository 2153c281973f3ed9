"""``audit``: any operator library, checked without its cooperation."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..audit.report import Audit

_PIPE_WIDTH = 160  # columns where the output goes into a file


def audit(
    target: Annotated[
        str, typer.Argument(help="An installed module, a shared library (.so), a kernel's folder, or a namespace.")
    ],
    command: Annotated[list[str] | None, typer.Argument(help="With --record, after --: what to record.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Take the calls from this file; with a COMMAND, record them into it first.")
    ] = None,
    samples: Annotated[
        str, typer.Option(metavar="MODULE:FUNCTION", help="Gives the SampleInputs for an operator's name.")
    ] = "",
    imports: Annotated[
        list[str] | None, typer.Option("--import", metavar="MODULE", help="Import this first; may be repeated.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="[NS::]NAME", help="Audit only this operator; may be repeated.")
    ] = None,
    checks: Annotated[list[str] | None, typer.Option("--check", help="Run only this check; may be repeated.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="An earlier output of --json: its findings are known and do not count.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="OPERATOR:CHECK=REASON", help="What the check finds is so on purpose; may be repeated."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything here.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a page for a browser here.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each check of each call.", min=1)] = 60.0,
) -> None:
    """Look for silently wrong operators in any library.

    Lists what the library registers and depends on, and checks calls of its operators in separate processes.
    Exit codes: 0 nothing found, 1 something is silently wrong or crashes, 2 wrong usage, or nothing could be checked.
    """
    from ..audit import allowances, report, run
    from ..audit.cells import WorkerError

    if sys.platform != "linux":
        raise typer.BadParameter(
            f"audit needs Linux, for its process tables and shared libraries; this is {sys.platform}"
        )
    unknown = [check for check in checks or [] if check not in run.CHECKS]
    if unknown:
        raise typer.BadParameter(f"no check {unknown[0]!r}; checks are: {', '.join(run.CHECKS)}", param_hint="--check")
    try:
        allowed = [allowances.parse(one, run.CHECKS) for one in allow or []]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--allow") from None
    known = _known(baseline)
    if command:
        _record(target, imports or [], command, record)
    elif record is not None and not record.is_file():
        option = f"--record {shlex.quote(str(record))} -- COMMAND"
        raise typer.BadParameter(f"there is no file {record}; to make it: {option}")
    try:
        found = run.audit(
            target,
            imports=imports or [],
            samples=samples,
            recorded=record,
            only=only or [],
            checks=checks or run.CHECKS,
            seconds=timeout,
            allowed=allowed,
            progress=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except WorkerError as error:
        raise typer.BadParameter(str(error), param_hint=error.given or "TARGET") from None
    _show(found, known)
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(found), indent=1) + "\n")
    if junit_file is not None:
        report.save_junit(found, junit_file)
    if html_file is not None:
        report.save_html(found, known, html_file)
    if found.tried == 0:
        # Whoever reads the exit code alone would take it for an audit without findings.
        print("nothing was checked: there was no call that could be tried; see --samples and --record", file=sys.stderr)
        raise typer.Exit(2)
    raise typer.Exit(1 if {finding.key for finding in found.findings} - known else 0)


def _known(baseline: Path | None) -> set[str]:
    if baseline is None:
        return set()
    from ..audit.report import known_findings

    try:
        return known_findings(baseline)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--baseline") from None


def _record(target: str, imports: list[str], command: list[str], record: Path | None) -> None:
    if record is None:
        raise typer.BadParameter("a COMMAND is recorded into a file: --record FILE -- COMMAND", param_hint="--record")
    from ..audit import recording
    from ..audit.cells import WorkerError
    from ..audit.run import namespaces_of

    try:
        status, count = recording.run(command, namespaces_of(target, imports), record)
    except (WorkerError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="COMMAND") from None
    print(f"recorded {count} calls; the command ended with status {status}", file=sys.stderr)
    if count == 0:
        # Whoever reads the exit code alone would take it for an audit without findings.
        raise typer.BadParameter(f"it called no operator of {target} that could be recorded", param_hint="COMMAND")


def _show(found: Audit, known: set[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..audit import report
    from ..audit.outcomes import Outcome

    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    for listed in found.operators:
        console.print(Text(listed["schema"]), soft_wrap=True)
        for key, place in listed["kernels"].items():
            console.print(Text(f"    {key}: {place}"), soft_wrap=True)
    for binary in found.binaries:
        console.print(Text(f"{Path(binary['path']).name}: {binary['summary']}"), soft_wrap=True)
    table = Table("operator", "checks", "outcome", "why")
    for operator, checks, outcome, message in report.rows(found):
        if outcome != Outcome.RIGHT.value:
            table.add_row(*map(Text, (operator, checks, outcome, message[:200])))
    console.print(table)
    for finding in found.findings:
        label = "known: " if finding.key in known else ""
        name = f"{finding.cell.operator}: {finding.cell.check}: {finding.outcome.value}"
        console.print(Text(f"\n{label}{name}: {finding.message}"), soft_wrap=True)
        console.print(Text(finding.reproduction), soft_wrap=True)
    for one in found.declared:
        was = f"{one['results']} results" if one["results"] else "nothing was found"
        console.print(Text(f"allowed: {one['operator']}: {one['check']}: {one['reason']} ({was})"), soft_wrap=True)
    for text, operators in found.notes.items():
        console.print(Text(f"note: {text}: {', '.join(operators)}"), soft_wrap=True)
    if found.untested:
        console.print(Text(f"no calls of: {', '.join(found.untested)}"))
    counts = report.counts(found)
    console.print(Text(", ".join(f"{outcome}: {count}" for outcome, count in counts.items())))
