"""The audit of libraries with planted defects, of the right one that they are made from, and of its files."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from opwheel.audit import binaries, calls, checks, limits, report, run, samples, worker
from opwheel.audit.outcomes import Cell, Outcome, Result
from opwheel.audit.recording import Recorder

from . import planted, torch_operators

ROOT = Path(__file__).parents[2]
DANGEROUS = ("crashes_on_empty", "ends_the_process", "hangs", "writes_out_of_bounds")  # for the tests' own process
NEEDED = 22  # of the planted defects


def opwheel_audit(*options, **kwargs):
    command = [sys.executable, "-m", "opwheel", "audit", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **kwargs)


def test_the_names_of_checks():
    """What the command line knows without PyTorch is what there is."""
    assert tuple(checks.CHECKS) == run.CHECKS


def judged(operator):
    """The checks of an operator's calls, in this process, that find something."""
    return [
        (check, message)
        for call in samples.given(f"{planted.__name__}:samples", [operator])
        for check in checks.CHECKS
        for outcome, message in [worker.judge(call, check)]
        if outcome is Outcome.WRONG
    ]


@pytest.mark.parametrize("name", [name for name, one in planted.WRONG.items() if one.name not in DANGEROUS])
def test_each_defect_is_found(name):
    assert judged(name)


@pytest.mark.parametrize("name", planted.RIGHT)
def test_its_right_twin_is_right(name):
    assert judged(name) == []


@pytest.mark.parametrize("code", ["import time; time.sleep(60)", "while True: pass"])
def test_a_process_that_does_not_end(code):
    process = subprocess.Popen([sys.executable, "-c", code])
    assert limits.wait(process, lambda: 0.5, lambda: None) == "no end after 0.5 seconds"
    assert process.returncode < 0


def test_a_process_that_makes_progress():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    assert limits.wait(process, lambda: 0.5, time.monotonic) == ""


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The audit of all libraries, by its command: what JSON says, the folder of its files, and the process."""
    folder = tmp_path_factory.mktemp("audit")
    only = [option for name in (*planted.RIGHT, *planted.WRONG) for option in ("--only", name)]
    done = opwheel_audit(
        *("tests.audit.planted", "--samples", "tests.audit.planted:samples", "--timeout", 20, *only),
        *("--json", folder / "a.json", "--junit", folder / "a.xml"),
    )
    assert done.returncode == 1, done.stderr
    return json.loads((folder / "a.json").read_text()), folder, done


def findings(content):
    outcomes = {Outcome.WRONG.value, Outcome.CRASHES.value}
    return [row for row in content["results"] if row["outcome"] in outcomes]


@pytest.mark.slow
def test_planted_defects_are_found(audited):
    content, _, _ = audited
    found = {row["operator"] for row in findings(content)}
    missed = [name for name in planted.WRONG if name not in found]
    assert len(planted.WRONG) >= 24
    assert len(planted.WRONG) - len(missed) >= NEEDED, missed


@pytest.mark.slow
def test_nothing_is_found_in_the_right_twins(audited):
    content, _, _ = audited
    assert [row for row in findings(content) if row["operator"] in planted.RIGHT] == []


@pytest.mark.slow
def test_every_finding_has_a_reproduction_without_opwheel(audited):
    content, _, done = audited
    for row in findings(content):
        assert row["reproduction"]
        assert "opwheel" not in row["reproduction"]
        assert row["operator"] in done.stdout


@pytest.mark.slow
def test_a_baseline_and_junit(audited):
    content, folder, _ = audited
    assert report.known_findings(folder / "a.json") == {
        f"{row['operator']} {row['check']} {row['outcome']}" for row in findings(content)
    }
    suite = ElementTree.parse(folder / "a.xml").getroot()
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) == len(findings(content))


def test_of_one_defect(tmp_path):
    """A crash ends its cell, not the audit; a baseline makes it known."""
    name = "planted_crashes_on_empty::double"
    options = ["tests.audit.planted", "--samples", "tests.audit.planted:samples", "--only", name]
    options += ["--check", "empty", "--check", "aliases", "--json", tmp_path / "a.json"]
    done = opwheel_audit(*options)
    assert done.returncode == 1, done.stderr
    outcomes = {row["check"]: row["outcome"] for row in json.loads((tmp_path / "a.json").read_text())["results"]}
    assert outcomes == {"call": "right", "aliases": "right", "empty": "crashes"}
    assert "torch.ops.planted_crashes_on_empty.double.default" in done.stdout
    assert opwheel_audit(*options, "--baseline", tmp_path / "a.json").returncode == 0


def test_recorded_calls(tmp_path):
    """The calls of another program, with their values."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, tests.audit.planted\n"
        "torch.ops.planted.clip(torch.tensor([1.0, 2.0]), 1.5)\n"
        "torch.ops.planted.clip(torch.tensor([3.0, 4.0]), 1.5)\n"  # of the same kind
        "torch.ops.planted.clip(torch.zeros(200, 200), 1.5)\n"  # too large
    )
    file = tmp_path / "recorded"
    command = ["--", sys.executable, str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = ["planted", "--import", "tests.audit.planted", "--record", file, "--check", "fake"]
    done = opwheel_audit(*options, "--only", "planted::clip", *command, env=environment)
    assert done.returncode == 0, done.stderr
    assert "recorded 1 calls" in done.stderr
    (call,) = calls.load(file)
    assert (call.operator, call.args[0].tolist(), call.args[1]) == ("planted::clip", [1.0, 2.0], 1.5)


def test_recorder_keeps_what_was_before_the_call():
    x = torch.ones(2)
    with Recorder({"aten"}) as recorder:
        x.neg_()
    assert [(c.operator, c.args[0].tolist()) for c in recorder.calls] == [("aten::neg_", [1.0, 1.0])]


def test_a_file_of_calls(tmp_path):
    args = (torch.arange(3), [1, None, "x"], float("inf"), 2 - 1j, torch.float16, torch.device("cpu"), (True,))
    calls.save([calls.Call("aten::add.Tensor", args, {"alpha": 0.1}, "recorded")], tmp_path / "f")
    (read,) = calls.load(tmp_path / "f")
    assert read.args[0].tolist() == [0, 1, 2]
    assert (read.args[1:], read.kwargs, read.origin) == (args[1:], {"alpha": 0.1}, "recorded")
    assert read.op is torch.ops.aten.add.Tensor


@pytest.mark.parametrize("content", [b"", b"not a file of calls"])
def test_a_file_of_something_else(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(calls.CallsFileError, match="holds no calls"):
        calls.load(tmp_path / "f")


def test_a_file_of_calls_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'ran'}",))

    torch.save({"format": "opwheel calls 1", "calls": Evil(), "tensors": []}, tmp_path / "f")
    with pytest.raises(calls.CallsFileError):
        calls.load(tmp_path / "f")
    assert not (tmp_path / "ran").exists()


def test_what_binds_a_library():
    library = Path(torch.__file__).parent / "lib" / "libtorch_python.so"
    found = binaries.read(library)
    assert "libtorch_cpu.so" in found.needed
    assert found.unstable
    assert found.python
    assert found.glibc
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF"):
        binaries.read(Path(__file__))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["no_such_library"], "neither a module nor a shared library"),
        (["no_such.so"], "there is no file no_such.so"),
        (["torch", "--check", "nothing"], "no check 'nothing'"),
        (["torch", "--record", "no_such_file"], "there is no file no_such_file"),
        (["torch", "--", "true"], "a COMMAND is recorded into a file"),
        (["torch", "--baseline", __file__], "is not what --json of an earlier audit wrote"),
    ],
)
def test_wrong_usage(options, words):
    done = opwheel_audit(*options)
    assert done.returncode == 2, done.stdout
    assert words in " ".join(done.stderr.replace("│", " ").split())


def test_the_worst_of_several_calls_is_shown():
    cells = [Cell("a::b", i, "fake", "given") for i in range(2)]
    results = [Result(cells[0], Outcome.RIGHT), Result(cells[1], Outcome.WRONG, "bad\nworse", "script")]
    audit = report.Audit("a", "", "", [{"operator": "a::b"}, {"operator": "a::c"}], [], results)
    assert list(report.rows(audit)) == [("a::b", "fake", "silently wrong", "bad")]
    assert audit.untested == ["a::c"]


@pytest.mark.slow
def test_nothing_is_found_in_operators_of_pytorch(tmp_path):
    names = torch_operators.record(tmp_path / "calls")
    assert len(set(names)) == torch_operators.COUNT
    only = [option for name in names for option in ("--only", name)]
    file = tmp_path / "a.json"
    opwheel_audit("aten", "--import", "torch", "--record", tmp_path / "calls", *only, "--json", file)
    assert {result["operator"] for result in json.loads(file.read_text())["results"]} == set(names)
    assert report.known_findings(file) - torch_operators.EXPLAINED == set()
