"""Calls: recorded from another program, generated from a schema, and in files."""

import os
import sys

import pytest
import torch
from opwheel_tools.audit import calls, recording, samples
from opwheel_tools.audit.recording import Recorder

from . import planted
from .command import ROOT, opwheel_audit


@pytest.mark.slow
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


def test_a_recording_keeps_the_environment_s_own_sitecustomize(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.own = 1\n")
    command = [sys.executable, "-c", "import torch; torch.ones(own).neg()"]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    status, count = recording.run(command, {"aten"}, tmp_path / "f")
    assert (status, count) == (0, len(calls.load(tmp_path / "f")))
    assert "aten::neg" in {call.operator for call in calls.load(tmp_path / "f")}


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


def test_a_generated_call():
    (call,) = samples.generated("planted::mix")
    assert (call.op, call.origin) == (torch.ops.planted.mix.default, "generated from the schema")
    assert planted.RIGHT
    call.op(*call.args, **call.kwargs)


def test_no_call_is_generated_where_an_integer_has_a_meaning_of_its_own():
    assert samples.generated("aten::select.int") == []
