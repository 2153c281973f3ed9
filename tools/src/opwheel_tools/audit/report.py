"""The audit in words, as JSON, JUnit XML and HTML; and what a baseline already knows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as Xml  # written, never read

from jinja2 import Environment, PackageLoader
from opwheel.formats import Format

from .allowances import Allowance
from .outcomes import FINDINGS, Outcome, Result, key_of

FORMAT = Format("opwheel audit", 1)


class Audit(NamedTuple):
    """Everything an audit found.

    Args:
        target: as it was given.
        version: of the target, where it says one.
        torch: the version of PyTorch.
        operators: name, schema and kernels of each operator.
        binaries: what binds each shared library.
        results: of all cells.
        allowed: what was declared to be so on purpose.
    """

    target: str
    version: str
    torch: str
    operators: list[dict[str, Any]]
    binaries: list[dict[str, Any]]
    results: list[Result]
    allowed: tuple[Allowance, ...] = ()

    @property
    def findings(self) -> list[Result]:
        """One result for each thing that a check found in an operator."""
        return list({r.key: r for r in reversed(self.results) if r.outcome in FINDINGS}.values())[::-1]

    @property
    def notes(self) -> dict[str, list[str]]:
        """What PyTorch does to every operator of some kind, with the operators that are of it."""
        found: dict[str, list[str]] = defaultdict(list)
        for result in self.results:
            if result.outcome is Outcome.NOTED and result.cell.operator not in found[result.message]:
                found[result.message].append(result.cell.operator)
        return dict(found)

    @property
    def declared(self) -> list[dict[str, Any]]:
        """What was declared to be so on purpose, and in how many results it was."""
        marked = [(one, one._replace(outcome=Outcome.WRONG)) for one in self.results if one.outcome is Outcome.ALLOWED]
        return [
            {**allowance._asdict(), "results": sum(allowance.covers(was) for _, was in marked)}
            for allowance in self.allowed
        ]

    @property
    def tried(self) -> int:
        """Checks that were made."""
        return sum(result.outcome is not Outcome.NOT_TRIED for result in self.results)

    @property
    def untested(self) -> list[str]:
        """Operators of which no call was tried."""
        tested = {result.cell.operator for result in self.results if result.outcome is not Outcome.NOT_TRIED}
        return [o["operator"] for o in self.operators if o["operator"] not in tested]


def rows(audit: Audit) -> Iterator[tuple[str, str, str, str]]:
    """Operator, checks, outcome, message: the worst of each check's calls, and checks that say the same in one row."""
    order = [*FINDINGS[::-1], Outcome.ALLOWED, Outcome.RAISES, Outcome.NOTED, Outcome.RIGHT, Outcome.NOT_TRIED]
    worst: dict[tuple[str, str], Result] = {}
    for result in audit.results:
        key = result.cell.operator, result.cell.check
        worst[key] = min(worst.get(key, result), result, key=lambda r: order.index(r.outcome))
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (operator, check), result in worst.items():
        groups[operator, result.outcome.value, result.message.strip().partition("\n")[0]].append(check)
    for (operator, outcome, message), checks in groups.items():
        yield operator, ", ".join(checks), outcome, message


def counts(audit: Audit) -> dict[str, int]:
    """How many cells came to each outcome."""
    found = Counter(result.outcome for result in audit.results)
    return {outcome.value: found[outcome] for outcome in Outcome}


def as_json(audit: Audit) -> dict[str, Any]:
    """What ``--json`` writes."""
    return {
        "format": FORMAT.as_json(),
        "target": audit.target,
        "version": audit.version,
        "torch": audit.torch,
        "operators": audit.operators,
        "binaries": audit.binaries,
        "untested": audit.untested,
        "counts": counts(audit),
        "allowed": audit.declared,
        "notes": [{"text": text, "operators": operators} for text, operators in audit.notes.items()],
        "results": [
            {**r.cell._asdict(), "outcome": r.outcome.value, "message": r.message, "reproduction": r.reproduction}
            for r in audit.results
        ],
    }


def save_junit(audit: Audit, path: Path) -> None:
    """Write a test case for each cell: findings are failures, and what was not tried is skipped."""
    suite = Xml.Element("testsuite", name=f"opwheel audit {audit.target}", tests=str(len(audit.results)))
    for result in audit.results:
        name = f"{result.cell.check} [call {result.cell.call}]"
        case = Xml.SubElement(suite, "testcase", classname=result.cell.operator, name=name)
        if result.outcome in FINDINGS:
            Xml.SubElement(case, "failure", message=result.message).text = result.reproduction
        elif result.outcome is not Outcome.RIGHT:
            Xml.SubElement(case, "skipped", message=f"{result.outcome.value}: {result.message}")
    suite.set("failures", str(sum(result.outcome in FINDINGS for result in audit.results)))
    Xml.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def save_html(audit: Audit, known: set[str], path: Path) -> None:
    """Write a page for a browser: findings with their reproductions, checks, operators, shared libraries."""
    environment = Environment(loader=PackageLoader("opwheel_tools", "audit"), autoescape=True, trim_blocks=True)
    shown = [row for row in rows(audit) if row[2] != Outcome.RIGHT.value]
    page = environment.get_template("report.html.jinja")
    path.write_text(page.render(audit=audit, known=known, rows=shown, counts=counts(audit)))


def known_findings(path: Path) -> set[str]:
    """The findings of an earlier run, from what ``--json`` wrote.

    Raises:
        ValueError: the file is something else.
    """
    try:
        content = json.loads(path.read_text())
        rows = [(r["operator"], r["check"], Outcome(r["outcome"]), r["message"]) for r in content["results"]]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not what --json of an earlier audit wrote: {error!r}") from error
    return {key_of(*row) for row in rows if row[2] in FINDINGS}
