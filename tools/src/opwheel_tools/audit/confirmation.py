"""Runs the reproduction of each finding: what it does not show is no finding."""

from __future__ import annotations

from ..judge.processes import shows
from .cells import Workers
from .outcomes import FINDINGS, Outcome, Result


def confirm(results: list[Result], workers: Workers) -> list[Result]:
    """Give each finding a script that shows it; a finding without one becomes "not tried".

    Findings of the same check of the same operator have one script, that of the first.
    """
    found: dict[str, Result] = {}
    for result in results:
        if result.outcome in FINDINGS:
            found.setdefault(result.key, result)
    scripts = dict(zip(found, workers.scripts(list(found.values())), strict=True)) if found else {}
    shown = {
        key: next(
            (
                text
                for text in scripts[key]
                if shows(text, 3 * workers.seconds, is_crash=result.outcome is Outcome.CRASHES)
            ),
            "",
        )
        for key, result in found.items()
    }
    return [_confirmed(result, shown[result.key]) if result.key in shown else result for result in results]


def _confirmed(result: Result, script: str) -> Result:
    if script:
        return result._replace(reproduction=script)
    return result._replace(outcome=Outcome.NOT_TRIED, message=f"its reproduction did not show: {result.message}")
