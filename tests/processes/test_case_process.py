"""A case that is measured in a process of its own has the same rows, notes and findings; a process may end."""

import os

import pytest
import torch
from opwheel_tools.bench import from_samples
from opwheel_tools.bench.case_process import CaseProcesses
from opwheel_tools.bench.results import Results
from opwheel_tools.bench.sampling import Precision

from .measured_library import library

pytestmark = pytest.mark.slow

QUICK = Precision(error=0.5, seconds=0.01, rounds=(3, 5))
SKIP = [from_samples.COMPILED, from_samples.FUNCTIONAL]


@pytest.fixture(scope="module")
def processes():
    return CaseProcesses(f"{__package__}.measured_library")


def cases(name):
    return list(from_samples.cases(library.overloads.values(), "cpu", [name]))


def outcome(run, name):
    results = Results({}, {})
    for case in cases(name):
        run(case, "cpu", QUICK, results, SKIP)
    rows = [(row.name, list(row.measurements), row.elements) for row in results.rows]
    return rows, results.notes, results.findings


def test_the_outcome_is_that_of_this_process(processes):
    found = outcome(processes.run, "softmax")
    assert found == outcome(from_samples.run, "softmax")
    rows, notes, findings = found
    assert [name for name, _, _ in rows] == [
        "softmax/new/sample 0/float32",
        "softmax/forward+backward/sample 0/float32",
    ]
    assert len(notes) == 6
    assert findings == []


def test_a_process_that_ends_is_a_finding_and_the_next_case_is_measured(processes):
    assert outcome(processes.run, "fill") == (
        [], [], ["fill/new/sample 0/float32: the process that measured it has ended"]
    )  # fmt: skip
    assert outcome(processes.run, "softmax")[0]


def test_each_case_has_a_process_with_the_threads_of_this_one(processes):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        _, notes, _ = outcome(processes.run, "blend")
    finally:
        torch.set_num_threads(before)
    said = [note.rpartition(": ")[2].split() for note in notes if note.startswith("says is left out")]
    assert [threads for _, threads in said] == ["3", "3"]
    assert len({os.getpid(), *(int(process) for process, _ in said)}) == 3
