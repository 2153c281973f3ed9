"""The audit finds planted defects, each in a library of its own, and nothing in the right library of them all."""

import json
import os

import pytest
from opwheel_tools.audit import checks, samples, worker
from opwheel_tools.audit.outcomes import Outcome

from . import planted
from .command import opwheel_audit

# Not for the tests' own process; the check that finds each.
DANGEROUS = {
    "crashes_on_empty": "empty",
    "ends_the_process": "call",
    "hangs": "call",
    "writes_out_of_bounds": "bounds",
    "writes_behind_its_result": "bounds",
    "writes_in_front_of_its_result": "bounds",
}
FOUND = {"silently wrong", "crashes"}
SOME = {"crashes_on_empty", "hangs", "writes_out_of_bounds"}  # the others of DANGEROUS are much alike
NOTED = "planted_register_autograd::square_scale"  # what PyTorch does to it
IS_WHOLE = os.environ.get("TEST_WHOLE_AUDIT") == "1"


def judged(operator, names=checks.CHECKS):
    """The checks of an operator's calls, in this process, that find something."""
    return [
        (check, message)
        for call in samples.given(f"{planted.__name__}:samples", [operator])
        for check in names
        for outcome, message in [worker.judge(call, check)]
        if outcome is Outcome.WRONG
    ]


@pytest.mark.parametrize(
    "name", [name for name, one in planted.WRONG.items() if name != NOTED and one.name not in DANGEROUS]
)
def test_each_defect_is_found(name):
    defect = planted.WRONG[name]
    found = judged(name, [defect.check] if defect.check else checks.CHECKS)
    assert found
    assert any(line.startswith(defect.where) for _, message in found for line in message.splitlines()), found


def test_what_pytorch_does_to_every_such_operator_is_a_note():
    """Zero tangents of an operator whose derivative torch.library registers."""
    (call,) = samples.given(f"{planted.__name__}:samples", [NOTED])
    for check in ("forward mode", "torch.func.jvp"):
        outcome, message = worker.judge(call, check)
        assert (outcome, message.partition(" for ")[0]) == (Outcome.NOTED, "PyTorch gives zero tangents")


@pytest.mark.parametrize("name", planted.RIGHT)
def test_its_right_twin_is_right(name):
    assert judged(name) == []


@pytest.mark.slow
def test_a_process_that_ends_does_not_end_the_audit(tmp_path):
    """Each of the dangerous operators is found by its own check, and the other checks of all of them are made."""
    dangerous = {name: check for name, check in DANGEROUS.items() if IS_WHOLE or name in SOME}
    names = {one.name: name for name, one in planted.WRONG.items() if one.name in dangerous}
    options = ["tests.audit.planted", "--samples", "tests.audit.planted:samples", "--timeout", 3]
    options += [option for name in (*names.values(), "planted::negate") for option in ("--only", name)]
    options += [option for check in ("aliases", *dangerous.values()) for option in ("--check", check)]
    done = opwheel_audit(*options, "--json", tmp_path / "a.json")
    assert done.returncode == 1, done.stderr
    rows = json.loads((tmp_path / "a.json").read_text())["results"]
    outcomes = {(row["operator"], row["check"]): row["outcome"] for row in rows}
    for name, check in dangerous.items():
        assert outcomes[names[name], check] in FOUND, (name, rows)
        assert f"torch.ops.{names[name].replace('::', '.')}.default" in done.stdout
    assert outcomes[names["crashes_on_empty"], "aliases"] == "right"
    assert outcomes[names["hangs"], "aliases"] == "not tried"
    assert {outcomes["planted::negate", check] for check in ("call", "aliases", "bounds")} == {"right"}


@pytest.mark.slow
def test_a_call_that_is_refused_has_no_further_checks(tmp_path):
    file = tmp_path / "a.json"
    module = "tests.audit.refusing"
    done = opwheel_audit(module, "--samples", f"{module}:samples", "--check", "aliases", "--json", file)
    assert done.stderr.splitlines() == [
        f"{module}: 1 operators, 1 calls, 2 checks",
        "refusing::every: call: raises",
        "refusing::every: aliases: not tried",
    ]
    (call, aliases) = json.loads(file.read_text())["results"]
    assert "does not fit" in call["message"]
    assert aliases["message"] == f"the plain call raises: {call['message']}"


@pytest.mark.slow
@pytest.mark.skipif(not IS_WHOLE, reason="every check in processes of its own: make nightly")
def test_the_whole_audit_by_its_command(tmp_path):
    only = [option for name in (*planted.RIGHT, *planted.WRONG) for option in ("--only", name)]
    file = tmp_path / "a.json"
    options = ["tests.audit.planted", "--samples", "tests.audit.planted:samples", "--timeout", 20, *only]
    done = opwheel_audit(*options, "--json", file)
    assert done.returncode == 1, done.stderr
    findings = [row for row in json.loads(file.read_text())["results"] if row["outcome"] in FOUND]
    missed = set(planted.WRONG) - {row["operator"] for row in findings}
    assert missed == {NOTED}
    assert [row for row in findings if row["operator"] in planted.RIGHT] == []
    for row in findings:
        assert row["reproduction"]
        assert "opwheel" not in row["reproduction"]
        assert row["operator"] in done.stdout
