"""Calls: recorded from another program, generated from a schema, and in files."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from opwheel_tools.audit import recording
from opwheel_tools.audit.recording import Recorder
from opwheel_tools.judge import calls
from opwheel_tools.judge.generated import generated

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
    (call,) = generated("planted::mix")
    assert (call.op, call.origin) == (torch.ops.planted.mix.default, "generated from the schema")
    assert planted.RIGHT
    call.op(*call.args, **call.kwargs)


def test_no_call_is_generated_where_an_integer_has_a_meaning_of_its_own():
    assert generated("aten::select.int") == []


def test_a_composite_operator_is_recorded():
    """One that consists of calls of others, by its name and by an overload of it."""
    with torch.library._scoped_library("audit_composite", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("twice.by(Tensor x, float y) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        library.impl("twice.by", lambda x, y: x * y, "CompositeImplicitAutograd")
        with Recorder({"audit_composite"}) as recorder:
            torch.ops.audit_composite.twice(torch.ones(2))
            torch.ops.audit_composite.twice(torch.ones(2), 3.0)
            torch.ops.audit_composite.twice.default(torch.ones(3))
    found = [(call.operator, call.args[0].tolist(), call.args[1:]) for call in recorder.calls]
    assert found == [
        ("audit_composite::twice", [1, 1], ()),
        ("audit_composite::twice.by", [1, 1], (3.0,)),
        ("audit_composite::twice", [1, 1, 1], ()),
    ]


def test_calls_before_a_crash_are_kept_and_the_one_that_crashes():
    code = (
        "import ctypes, torch\n"
        "torch.ones(2).neg()\n"
        "try:\n    torch.ones(2).view(3)\nexcept RuntimeError:\n    pass\n"
        "lib = torch.library.Library('aten', 'IMPL')\n"
        "lib.impl('atan', lambda x: ctypes.string_at(0), 'CPU')\n"
        "torch.ones(2).atan()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "f"
        status, count = recording.run([sys.executable, "-c", code], {"aten"}, file)
        names = [call.operator for call in calls.load(file)]
    assert (status, count) == (-signal.SIGSEGV, len(names))
    assert {"aten::neg", "aten::atan"} <= set(names)
    assert "aten::view" not in names  # it raises


def test_operators_of_what_a_library_imports_are_not_its(tmp_path):
    """Its own are those that its files register, under any namespace; not those that a framework registers for it."""
    define = "import torch\nlib = torch.library.Library('{}', 'DEF')\nlib.define('f(Tensor x) -> Tensor')\n"
    (tmp_path / "audited").mkdir()
    (tmp_path / "audited/__init__.py").write_text(
        "import audited_needs, audited_framework\nfrom . import operators\n"
        "lib = audited_framework.define('made_for_it')\n"
    )
    (tmp_path / "audited_framework.py").write_text(
        "import torch\ndef define(name):\n    lib = torch.library.Library(name, 'DEF')\n"
        "    lib.define('f(Tensor x) -> Tensor')\n    lib.impl('f', lambda x: x, 'CPU')\n    return lib\n"
    )
    (tmp_path / "audited/operators.py").write_text(define.format("other_name"))
    (tmp_path / "audited_needs.py").write_text(define.format("of_another"))
    (tmp_path / "audited_plain.py").write_text("import audited_needs\n")
    code = (
        "from opwheel_tools.audit.target import Target, TargetError\n"
        "try:\n    Target('audited_plain').load()\nexcept TargetError as error:\n    print(error)\n"
        "print(Target('audited').load())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    refusal, own = done.stdout.splitlines()
    assert refusal.endswith("what it imports registers the namespaces of_another (audited_needs)")
    assert own == "['other_name::f']"
