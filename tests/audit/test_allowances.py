"""Right operators that look odd, and what is declared about them."""

import json

import pytest
from opwheel_tools.audit import allowances, checks, run, worker
from opwheel_tools.audit.outcomes import FINDINGS, Cell, Outcome, Result
from opwheel_tools.judge.calls import Call

from . import odd
from .command import opwheel_audit, opwheel_audit_here


@pytest.mark.parametrize("name", odd.calls())
def test_nothing_is_found_in_odd_operators_but_what_is_declared(name):
    call = Call(f"odd::{name}", odd.calls()[name], {})
    outcomes = {check: worker.judge(call, check) for check in checks.CHECKS}
    found = {check: message for check, (outcome, message) in outcomes.items() if outcome in FINDINGS}
    assert set(found) == {check for operator, check in odd.ALLOWED if operator == name}, found
    assert outcomes["call"][0] is Outcome.RIGHT


def test_an_allowance_covers_one_check_of_one_operator():
    one = allowances.parse("odd::half:autocast=float16 = wanted", run.CHECKS)
    assert one == ("odd::half", "autocast", "float16 = wanted")
    results = [
        Result(Cell(operator, 0, check, "given"), outcome, "dtype of result 0: wrong")
        for operator in ("odd::half", "odd::half.out")
        for check in ("autocast", "fake")
        for outcome in FINDINGS
    ]
    marked = [one for one in allowances.apply(results, [one]) if one.outcome is Outcome.ALLOWED]
    assert [(one.cell.operator, one.cell.check, one.message) for one in marked] == [
        ("odd::half", "autocast", "float16 = wanted (dtype of result 0: wrong)")
    ]
    assert allowances.Allowance("half", "autocast", "short").covers(results[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("odd::half", "'odd::half' is not OPERATOR:CHECK=REASON"),
        ("odd::half:autocast=", "is not OPERATOR:CHECK=REASON"),
        ("odd::half:autocats=why", "no check 'autocats' in 'odd::half:autocats=why'; checks are: call, fake"),
        ("autocast=why", "is not OPERATOR:CHECK=REASON"),
    ],
)
def test_wrong_allowances(text, words):
    done = opwheel_audit_here("tests.audit.odd", "--allow", text)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.slow
def test_what_is_allowed_is_in_the_reports(tmp_path):
    """A finding, one that was declared and is not there, and an operator that does not exist."""
    options = ["tests.audit.odd", "--samples", "tests.audit.odd:samples", "--only", "odd::half"]
    options += ["--check", "autocast", "--check", "fake", "--allow", "half:autocast=by design"]
    files = ["--json", tmp_path / "a.json", "--html", tmp_path / "a.html"]
    done = opwheel_audit(*options, "--allow", "odd::half:fake=nothing", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "allowed: half: autocast: by design (1 results)" in done.stdout
    assert "allowed: odd::half: fake: nothing (nothing was found)" in done.stdout
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["allowed"][0] == {"operator": "half", "check": "autocast", "reason": "by design", "results": 1}
    assert content["counts"]["allowed"] == 1
    assert "by design" in (tmp_path / "a.html").read_text()
    done = opwheel_audit(*options, "--allow", "odd::halv:fake=nothing")
    assert done.returncode == 2
    assert "Invalid value for --allow: there is no operator 'odd::halv'" in " ".join(
        done.stderr.replace("│", " ").split()
    )
