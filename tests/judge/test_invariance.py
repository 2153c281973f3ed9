"""``opwheel judge --invariant``: claims about bits of any callable."""

import json
import subprocess
import sys

import pytest
import torch
from opwheel_tools.judge import UsageError, judge_invariance
from opwheel_tools.judge.invariance.claims import check_names, claims_of

from .planted import HERE

FILE = "tests/judge/invariant.py"
BATCH = "batch:x=0,result=0"


def judged(name, claims, inputs="one", **more):
    return judge_invariance(f"{FILE}:{name}", claims, inputs=f"{FILE}:{inputs}", **more)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(HERE.parents[1])


@pytest.mark.parametrize(
    ("name", "claims", "more"),
    [
        ("sums", [BATCH, "threads:x=0", "layout", "repeat", "grad"], {}),
        ("scaled", {"batch": {"x": 0, "factors": -2, "result0": 0, "result1": 0}}, {"inputs": "two"}),
        ("doubled_", "batch:x=0", {}),
        ("of_even_widths", BATCH, {}),
        ("Scaled", BATCH, {"init": f"{FILE}:width", "inputs": "twice"}),
        ("Doubled", BATCH, {}),
    ],
)
def test_claims_that_hold(name, claims, more):
    verdict = judged(name, claims, **more)
    assert verdict.is_invariant, verdict.report
    assert verdict.line.startswith(f"invariant: {FILE}:{name}: ")
    assert all(one.held == verdict.calls for one in verdict.claims)
    assert ("note: " in verdict.report) == (name in ("of_even_widths", "Scaled"))  # other widths


@pytest.mark.parametrize(("name", "claim"), [("sums_by_rows", BATCH), ("sums_by_threads", "threads")])
def test_a_claim_that_does_not_hold(name, claim):
    verdict = judged(name, ["layout", claim])
    assert not verdict.is_invariant
    assert verdict.line == f"NOT INVARIANT: {FILE}:{name}: {claim} (1 call)"
    layout, other = verdict.claims
    assert layout.held == 1
    assert "elements of 'result' differ in their bits" in other.found[0]


def test_functions_and_operators():
    relu = torch.nn.functional.relu
    assert judge_invariance(relu, "batch:input=0,result=0", inputs=f"{FILE}:one").is_invariant
    verdict = judge_invariance("aten::mul.Tensor", {"batch": {"self": 0, "other": 0, "result": 0}, "layout": True})
    assert verdict.is_invariant, verdict.report


def test_a_candidate_that_ends_its_process():
    verdict = judged("ends", [BATCH, "layout"])
    batch, layout = verdict.claims
    assert not verdict.is_invariant
    assert "3" in batch.found[0]
    assert layout.held == 1


@pytest.mark.parametrize(
    ("name", "claims", "message"),
    [
        ("sums", [], "nothing is claimed"),
        ("sums", "rows:x=0", "no claim 'rows'; there are batch, "),
        ("sums", "batch", "'batch' needs dimensions"),
        ("sums", "batch:x,result=0", "'x' is not understood; write NAME=DIMENSION"),
        ("sums", {"batch": {"x": "0"}}, "give dimensions by name"),
        ("sums", "order:x=0", "counted from the end"),
        ("sums", "batch:z=0,result=0", "'z' is no tensor of this call; there are x, result"),
        ("sums", "batch:x=5,result=0", "could not be tried: the call does not have these dimensions"),
        ("of_four_rows", BATCH, "could not be tried: the candidate raises RuntimeError"),
        ("variadic", "repeat", "wrap it in a function"),
        ("in_a_dict", "repeat", "it returns dict; return a tensor"),
        ("nothing", "repeat", "has no 'nothing'"),
    ],
)
def test_what_cannot_be_judged(name, claims, message):
    with pytest.raises(UsageError) as error:
        judged(name, claims)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("batch:x=0", "it names no result; there are result"),
        ("batch:result=0", "it names no argument; there are x"),
        ("order:x=-2,result=-2", "'result' is no tensor of this call; there are x"),
    ],
)
def test_what_the_candidate_has_not_got(claim, message):
    (one,) = claims_of(claim)
    with pytest.raises(UsageError) as error:
        check_names(one, ["x"], ["result"])
    assert message in str(error.value)


def test_no_inputs_and_no_module():
    with pytest.raises(UsageError, match="name a function that yields tuples of arguments"):
        judge_invariance(f"{FILE}:sums", "repeat")
    with pytest.raises(UsageError, match="nowhere cannot be imported"):
        judge_invariance("nowhere:f", "repeat", inputs=f"{FILE}:one")


def test_the_command(tmp_path):
    def command(*options):
        line = [sys.executable, "-m", "opwheel", "judge", *options, "--inputs", f"{FILE}:one"]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    file = tmp_path / "verdict.json"
    done = command(f"{FILE}:sums_by_rows", "--invariant", BATCH, "--invariant", "repeat", "--json", str(file))
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("NOT INVARIANT: ")
    verdict = json.loads(file.read_text())
    assert verdict["format"] == {"name": "opwheel judge --invariant", "version": 1}
    assert [one["held"] for one in verdict["claims"]] == [0, 1]
    both = command(f"{FILE}:sums", "--invariant", "repeat", "--reference", f"{FILE}:sums")
    assert both.returncode == 2
    assert "there is no reference" in both.stderr
