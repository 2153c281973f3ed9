"""Runs the reproduction of each finding: what it does not show is no finding."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .cells import Workers
from .limits import wait
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
        key: next((text for text in scripts[key] if shows(text, result.outcome, 3 * workers.seconds)), "")
        for key, result in found.items()
    }
    return [_confirmed(result, shown[result.key]) if result.key in shown else result for result in results]


def _confirmed(result: Result, script: str) -> Result:
    if script:
        return result._replace(reproduction=script)
    return result._replace(outcome=Outcome.NOT_TRIED, message=f"its reproduction did not show: {result.message}")


def shows(text: str, outcome: Outcome, seconds: float) -> bool:
    """Whether a script, run now, ends as the finding says.

    That is by the check's assertion, or for a crash by a signal, a silent exit or no end at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        script, errors = Path(folder) / "reproduction.py", Path(folder) / "errors"
        script.write_text(text)
        search = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": search}  # the library may lie in the current folder
        with errors.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, str(script)], env=environment, stdout=subprocess.DEVNULL, stderr=stream
            )
            wait(process, lambda: seconds, lambda: None)
        printed = errors.read_text(errors="replace")
    if outcome is Outcome.CRASHES:
        return process.returncode != 0 and "Traceback" not in printed
    return process.returncode == 1 and "AssertionError" in printed
