"""The judge finds planted defects, and nothing in right functions, however odd they look."""

import re
from pathlib import Path

import pytest
from opwheel_tools.judge import judge
from opwheel_tools.judge.verdict import GROUPS

from . import planted

pytestmark = pytest.mark.usefixtures("in_this_process")
REFERENCES = planted.HERE / "references.py"
ODD = planted.HERE / "odd.py"
_REFERENCE = r"^(?:def|class) (\w+)_reference\b"
# In `make test`: a defect of each kind, and a right function of each sort; the others are found nightly.
SOME = {
    *("zeros", "result_of_another_dtype", "many_rows", "overflow", "ignores_strides", "backward_lacks_a_term"),
    *("overwrites_incoming_gradient", "two_names_for_one_tensor", "saved_without_a_version", "second_derivatives"),
    *("without_grad", "in_inference_mode", "compiled", "under_autocast", "in_another_thread"),
    *("under_vmap", "tangent_is_passed_on"),
    *(
        "keeps_results_by_address",
        "makes_the_one_call_of_the_reference",
        "replaces_a_function",
    ),
    *("buffer_counts_twice", "new_memory_is_to_be_zero", "writes_behind_its_result"),
}
RIGHT = {"swiglu", "relu", "Scaled"}
LOOKS_ODD = {"straight_through", "nonzero", "in_place", "of_a_list", "sums_in_another_order", "kink", "attention"}


def _some(name, chosen):
    """The parameter of a test, which runs nightly where it is not among the chosen ones."""
    return () if name in chosen else (pytest.mark.slow, pytest.mark.nightly)


def judged(file, name, reference=""):
    """A verdict on a function or module of a file with the names of candidates.py."""
    is_module = name in ("Model", "Scaled")
    inputs, init = ("get_inputs", f"{REFERENCES}:get_init_inputs") if is_module else (f"{name}_inputs", "")
    reference = reference or f"{REFERENCES}:{name}"
    return judge(f"{file}:{name}", reference=reference, inputs=f"{REFERENCES}:{inputs}", init=init)


@pytest.mark.parametrize(
    "defect",
    [pytest.param(one, id=one.name, marks=_some(one.name, SOME)) for one in planted.DEFECTS],
)
def test_each_defect_is_found(defect, tmp_path):
    file = tmp_path / "candidates.py"
    file.write_text(planted.text_of(defect))
    verdict = judged(file, defect.candidate, defect.reference)
    assert defect.kind in [finding.group for finding in verdict.findings], verdict


@pytest.mark.parametrize(
    ("name", "reference"),
    [pytest.param(*one, id=one[0], marks=_some(one[0], RIGHT)) for one in planted.RIGHT],
)
def test_nothing_is_found_in_its_right_twin(name, reference):
    verdict = judged(planted.HERE / "candidates.py", name, reference)
    assert verdict.findings == []
    assert verdict.tried > 40
    assert verdict.error < 3


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=_some(one, LOOKS_ODD)) for one in re.findall(_REFERENCE, ODD.read_text(), re.MULTILINE)],
)
def test_nothing_is_found_in_what_looks_odd(name):
    init = f"{ODD}:{name}_init" if f"def {name}_init(" in ODD.read_text() else ""
    verdict = judge(f"{ODD}:{name}", reference=f"{ODD}:{name}_reference", inputs=f"{ODD}:{name}_inputs", init=init)
    assert verdict.findings == []
    assert verdict.tried > 25


def test_there_are_enough_of_them():
    assert len(planted.DEFECTS) >= 77
    assert len(re.findall(_REFERENCE, ODD.read_text(), re.MULTILINE)) >= 16
    assert {one.name for one in planted.DEFECTS} >= SOME
    kinds = {one.kind for one in planted.DEFECTS}
    assert {one.kind for one in planted.DEFECTS if one.name in SOME} == kinds - {"running"}  # which takes a minute
    assert {one.kind for one in planted.DEFECTS} >= GROUPS.keys() - {"crash"}  # which is in a process of its own


def test_the_reference_in_its_own_dtype_is_said():
    name = "no_tensor_in_float64"
    verdict = judge(f"{ODD}:{name}", reference=f"{ODD}:{name}_reference", inputs=f"{ODD}:{name}_inputs")
    assert verdict.notes == ["the reference refuses float64; it is compared in its own dtype"]


def test_float32_inside_is_a_note():
    name = "narrow_inside"
    verdict = judge(f"{ODD}:{name}", reference=f"{ODD}:{name}_reference", inputs=f"{ODD}:{name}_inputs")
    assert verdict.notes == ["float64 is computed with float32 inside"]
    assert verdict.is_right


def test_an_interrupt_keeps_what_is_known(monkeypatch):
    from opwheel_tools.judge import judgement

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(judgement.variants, "bases", interrupt)  # the trials around the given call
    verdict = judged(planted.HERE / "candidates.py", "clamp_into")
    assert not verdict.is_complete
    assert "stopped before the end" in verdict.line
    assert verdict.tried == 2


def test_the_candidate_is_not_told_what_is_expected(monkeypatch):
    """Nor is it there while the candidate runs."""
    from .conftest import InThisProcess

    do, told, folders = InThisProcess.do, [], set()

    def recording(self, task, seconds=0.0):
        if task["do"] == "expect":
            folders.add(task["expected"])
        if task["do"] == "try":
            there = [file for folder in folders for file in Path(folder).iterdir()]
            told.append((task, [path.name for path in Path(task["folder"]).iterdir()], there))
        return do(self, task, seconds)

    monkeypatch.setattr(InThisProcess, "do", recording)
    assert judged(planted.HERE / "candidates.py", "top_index").is_right
    assert told
    assert folders
    for task, files, there in told:
        assert "expected" not in task
        assert {name.partition("-")[0] for name in files} <= {"case", "got", "trial"}
        assert there == []


def test_what_is_refused_is_said():
    name = "only_float32"
    verdict = judge(f"{ODD}:{name}", reference=f"{ODD}:{name}_reference", inputs=f"{ODD}:{name}_inputs")
    assert verdict.is_right
    assert sum(verdict.refused.values()) >= 10
    assert any("torch.float16" in reason for reason in verdict.refused)


IN_PLACE = """
import torch

def add(x, y):
    return x.copy_(x + y)

def nearly(x, y):
    return x.add_(y * 1.01)

def inputs():
    yield torch.randn(3, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
"""


def test_a_reference_that_writes_is_called_with_copies(tmp_path):
    """In float64, too, where no conversion makes one: else each call would begin with what the last one left."""
    (tmp_path / "in_place.py").write_text(IN_PLACE)
    names = (f"{tmp_path / 'in_place.py'}:{name}" for name in ("nearly", "add", "inputs"))
    candidate, reference, inputs = names
    assert judge(reference, reference=reference, inputs=inputs).is_right
    (finding,) = [one for one in judge(candidate, reference=reference, inputs=inputs).findings if one.group == "values"]
    assert finding.trial.startswith("values, ")


def test_an_operator_is_judged_by_its_name():
    inputs = f"{REFERENCES}:softmax_over_a_dimension_inputs"
    assert judge("aten::softmax.int", reference="aten::softmax.int", inputs=inputs).is_right
