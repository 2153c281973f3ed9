"""What is no defect of a kernel's is not called one, and an interrupt keeps what is known."""

import pytest
import torch
from opwheel_tools.judge import cases, comparison, expectation, findings, judge, judgement, programs, subjects, watching

from . import planted
from .test_defects import REFERENCES

pytestmark = pytest.mark.usefixtures("in_this_process")
CANDIDATES = planted.HERE / "candidates.py"


def judged(file, name, reference=""):
    return judge(f"{file}:{name}", reference=reference or f"{REFERENCES}:{name}", inputs=f"{REFERENCES}:{name}_inputs")


def test_a_derivative_at_a_kink_may_be_anything_finite():
    """In both directions from every zero, however many there are."""
    program, relu = programs.PROGRAMS["gradients"], subjects.make(torch.relu)
    (case,) = cases.cases_of([(torch.zeros(1000),)])
    (expected,) = expectation.expect(program, (0,), relu, case)
    assert bool(expected["jumps"][programs.weights(torch.zeros(1000)) != 0].all())
    (case,) = cases.cases_of([(torch.randn(1000),)])
    (expected,) = expectation.expect(program, (0,), relu, case)
    assert not bool(expected["jumps"].any())


def test_a_derivative_at_a_tie_may_be_anything_finite():
    """However many pairs there are: both numbers of a pair never move by the same."""
    program, largest = programs.PROGRAMS["gradients"], subjects.make(lambda x: x.amax(-1))
    (case,) = cases.cases_of([(torch.ones(1000, 2),)])
    (expected,) = expectation.expect(program, (0,), largest, case)
    assert bool(expected["jumps"][programs.weights(torch.zeros(1000)) != 0].all())


def test_a_derivative_may_be_that_of_any_of_many_equal_numbers():
    """Four of nineteen zeros are chosen, and no draw chooses each of them; other numbers are no zeros."""
    program, largest = programs.PROGRAMS["gradients"], subjects.make(lambda x: x.topk(4).values)
    x = torch.zeros(6, 19)
    x[0] = torch.linspace(1, 2, 19)
    (case,) = cases.cases_of([(x,)])
    (expected,) = expectation.expect(program, (0,), largest, case)
    assert torch.equal(expected["jumps"], x == 0)


def test_results_that_are_too_large_are_compared_of_given_calls_alone():
    """Of two vectors of 1,500 elements, all products."""
    program, products = programs.PROGRAMS["values"], subjects.make(lambda x, y: x[:, None] * y)
    (case,) = cases.cases_of([(torch.randn(1500), torch.randn(1500))])
    with pytest.raises(expectation.RefusedByReference, match="the results have 2250000 elements"):
        expectation.expect(program, (), products, case)
    (expected,) = expectation.expect(program, (), products, case, is_given=True)
    assert expected["want"].shape == (1500, 1500)


def test_what_a_subnormal_number_becomes_may_be_zero():
    """A kernel whose exponentials are zero there is right, though a factor makes its result a normal number."""
    subject = subjects.make(lambda x: x.exp() * 1e4)
    (case,) = cases.cases_of([(torch.tensor([-88.0, -80.0]),)])
    (expected,) = expectation.expect(programs.PROGRAMS["values"], (), subject, case)
    lost, kept = (expected["allowed"] * expected["unit"] / expected["want"]).tolist()
    assert lost > 1
    assert kept < 1e-3


def test_what_a_subnormal_number_becomes_may_be_nan_of_infinities():
    """A kernel whose exponentials are zero there is right: zero times an infinity."""
    subject = subjects.make(lambda x, y: x.exp() * y)
    (case,) = cases.cases_of([(torch.tensor([-100.0, -80.0]), torch.tensor([torch.inf, torch.inf]))])
    (expected,) = expectation.expect(programs.PROGRAMS["values"], (), subject, case)
    assert bool((expected["want"] == torch.inf).all())
    for got, is_right in (([torch.nan, torch.inf], True), ([torch.inf, torch.nan], False)):
        assert (comparison.compare([torch.tensor(got)], [expected], "result").problem == "") == is_right


@pytest.mark.parametrize("flushes", [False, True])
def test_subnormal_numbers_are_afterwards_what_they_were(flushes):
    subject = subjects.make(torch.exp)
    (case,) = cases.cases_of([(torch.tensor([-88.0, torch.inf]),)])
    try:
        torch.set_flush_denormal(flushes)
        expectation.expect(programs.PROGRAMS["values"], (), subject, case)
        assert bool(torch.tensor(1e-39) * 1) != flushes
    finally:
        torch.set_flush_denormal(False)


def test_where_pytorch_loses_all_digits_more_of_them_are_no_finding():
    """1 + tanh, far below zero, in PyTorch's own operator."""
    subject = subjects.make(lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    (case,) = cases.cases_of([(torch.tensor([-9.0], dtype=torch.float64),)])
    (expected,) = expectation.expect(programs.PROGRAMS["values"], (), subject, case)
    assert expected["want"] == 0
    assert comparison.compare([torch.tensor([-1.7e-28], dtype=torch.float64)], [expected], "result").problem == ""
    assert comparison.compare([torch.tensor([-0.1], dtype=torch.float64)], [expected], "result").problem


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_intermediate_results_are_rounded_in_every_dtype(dtype):
    """What is left of a sum of large numbers is as uncertain as these are."""
    subject = subjects.make(lambda x: (x + 1000) - x)
    (case,) = cases.cases_of([(torch.tensor([3e4], dtype=dtype),)])
    (expected,) = expectation.expect(programs.PROGRAMS["values"], (), subject, case)
    assert float(expected["unit"]) > 1e4 * torch.finfo(dtype).eps


def test_nan_that_does_not_matter_may_be_a_number():
    """As the value of a key that is masked; where it matters, as in a maximum, it may not."""
    for function, is_free in ((lambda x: x[:1] + x[1:] * 0, True), (lambda x: x.amax(0, True), False)):
        (case,) = cases.cases_of([(torch.tensor([2.0, torch.nan]),)])
        (expected,) = expectation.expect(programs.PROGRAMS["values"], (), subjects.make(function), case)
        for number in (2.0, torch.nan):
            compared = comparison.compare([torch.tensor([number])], [expected], "result")
            assert bool(compared.problem) == (not is_free and number == 2.0)


def test_nan_at_a_kink_is_found(tmp_path):
    file = tmp_path / "with_nan.py"
    file.write_text("import torch\n\ndef relu(x):\n    return torch.where(x > 0, x.abs().sqrt() ** 2, x * 0)\n")
    assert "numbers" in [finding.group for finding in judged(file, "relu", "aten::relu").findings]


def test_what_fails_in_the_judge_itself_is_a_note(monkeypatch):
    calls = []

    def fail_once(_):
        calls.append(0)
        if len(calls) == 9:
            raise ValueError("planted")
        return []

    monkeypatch.setattr(watching, "left_running", fail_once)
    verdict = judged(CANDIDATES, "relu", "aten::relu")
    assert verdict.findings == []
    (note,) = verdict.notes
    assert note.startswith("judge itself failed: ValueError: planted: ")


def test_a_result_that_cannot_be_compared_is_a_note(tmp_path):
    file = tmp_path / "subclass.py"
    file.write_text(
        "import torch\n\nclass Named(torch.Tensor):\n    pass\n\n"
        "def clamp_into(x, low):\n    y = x.clamp(min=low)\n    return y.as_subclass(Named) if x.dim() > 2 else y\n"
    )
    verdict = judged(file, "clamp_into")
    assert verdict.findings == []
    assert verdict.notes
    assert all(note.startswith("judge itself failed: TypeError: a Named cannot be compared") for note in verdict.notes)


@pytest.fixture
def interrupted(monkeypatch, tmp_path):
    """A verdict on a wrong kernel, interrupted after the given calls; what takes the place of scripts is given."""

    def stop(*_):
        raise KeyboardInterrupt

    def verdict(scripts):
        (defect,) = [one for one in planted.DEFECTS if one.name == "zeros"]
        file = tmp_path / "candidates.py"
        file.write_text(planted.text_of(defect))
        monkeypatch.setattr(judgement.variants, "bases", stop)
        monkeypatch.setattr(findings, "scripts", scripts)
        monkeypatch.setattr(findings, "shows", lambda *_, **__: True)
        return judged(file, defect.candidate)

    return verdict


def test_after_an_interrupt_there_are_the_scripts_of_what_was_found(interrupted):
    verdict = interrupted(lambda *_: iter(["a script"]))
    assert not verdict.is_complete
    assert [finding.reproduction for finding in verdict.findings] == ["a script"]


def test_a_second_interrupt_leaves_them_out(interrupted):
    def stop(*_):
        raise KeyboardInterrupt

    verdict = interrupted(stop)
    assert [finding.not_reproduced for finding in verdict.findings] == ["the judge was stopped"]
    assert verdict.line.startswith("WRONG: ")


def test_a_shape_that_is_wrong_is_not_said_of_memory_as_well(tmp_path):
    (defect,) = [one for one in planted.DEFECTS if one.name == "a_block_and_no_more"]
    file = tmp_path / "candidates.py"
    file.write_text(planted.text_of(defect))
    assert "memory" not in [finding.group for finding in judged(file, defect.candidate).findings]
