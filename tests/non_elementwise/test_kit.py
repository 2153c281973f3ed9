"""The conformance kit on operators of any class: what is right passes, and the report says what is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from opwheel.dispatch import Operator, overloads_of, register_python
from opwheel.registry import BackendStatus, State
from opwheel_tools import OpInfo
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import crashes, matrix
from opwheel_tools.testing.alone import admitted
from opwheel_tools.testing.report import Outcome, hint_for, left_out_lines, lines

HERE = Path(__file__).parent


def run_kit(*options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:logging"]
    command += [
        "--pyargs",
        "opwheel_tools.testing.test_samples",
        "--library",
        "kit_library",
        "--backend",
        "cpu",
        *options,
    ]
    environment = {"PYTHONPATH": str(HERE), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)


@pytest.fixture(scope="module")
def output():
    done = run_kit("-k", "not compiled and not opcheck and not crash_in_half and not reads")
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_crash_is_that_operators_failure(output):
    assert "crashing: values: 4 of 4 failed" in output
    assert "a call of its kernel ends the process: killed by SIGSEGV" in output


@pytest.mark.slow
def test_a_kernel_that_reads_out_of_bounds_fails():
    done = run_kit("-k", "reads and values and not bits")
    assert "8 errors" in done.stdout.splitlines()[-1]
    for operator in ("reads_in_front", "reads_behind"):
        assert f"{operator}: values: 4 of 4 failed" in done.stdout
    how = "killed by SIGSEGV, called with arguments next to inaccessible pages"
    assert done.stdout.count(f"a call of its kernel ends the process: {how}") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "last"),
    [
        ("float32 and values", "1 passed"),
        ("values and not (bits or bfloat16 or float32 or float64)", "1 error"),
        ("autocast", "1 error"),
    ],
)
def test_a_crash_in_a_dtype_that_is_not_called_is_none(chosen, last):
    done = run_kit("-k", f"crash_in_half and {chosen}")
    assert last in done.stdout.splitlines()[-1]
    assert ("killed by SIGSEGV" in done.stdout) == (last == "1 error")


@pytest.mark.slow
def test_what_cannot_be_watched_on_a_device_is_not_passed():
    done = run_kit("--device", "meta", "-k", "right and (bounds or growth)")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" not in done.stdout.splitlines()[-1]
    for check in ("bounds", "growth"):
        assert f"not tried: {check}: it watches the memory of a CPU, not that of meta" in done.stdout


def test_samples_that_cannot_be_made_are_no_crash(monkeypatch, capsys):
    """As on a device that only the tests' process has."""

    def samples(device, dtype, requires_grad):
        raise ValueError("there is no such device")

    schema = "unmade(Tensor x) -> Tensor"
    register_python("waves_unmade", {schema: torch.sin}, [Operator("unmade", reference=torch.sin)])
    register_op_infos("waves_unmade", {"unmade": OpInfo(samples=samples)})
    overloads = overloads_of(torch.library.Library("waves_unmade", "FRAGMENT"))
    monkeypatch.setitem(sys.modules, "unmade", SimpleNamespace(library=SimpleNamespace(overloads=overloads)))
    crashes.main("unmade", "cpu", "values,layouts", "unmade=float32,float64")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["calling unmade", "called with arguments next to inaccessible pages", "all are called"]


@pytest.mark.slow
def test_failures_are_grouped(output):
    assert "overclaimed: vmap: 1 of 1 failed (float64)" in output
    assert "rounded: values: 2 of 4 failed (bfloat16, float16)" in output
    assert "hint: bfloat16 and float16 alone: rounding" in output
    assert "right: " not in output


@pytest.mark.slow
def test_the_report_fits_on_a_screen_or_two(output):
    assert len(output.splitlines()) < 150


@pytest.mark.slow
def test_what_is_not_tested_is_listed(output):
    assert "without samples, and not tested: unsampled" in output
    assert "without a declaration, and not tested: undeclared" in output
    assert "computed by the reference, for lack of a kernel: right" in output


def one(outcome, dtype="", layout="", message="", operator="f"):
    return Outcome(operator, "values", dtype, layout, outcome, message)


def test_nothing_is_said_where_nothing_fails():
    assert list(lines([one("passed")])) == []


@pytest.mark.parametrize(
    ("group", "hint"),
    [
        ([one("passed", layout="contiguous"), one("failed", layout="sliced")], "strides"),
        ([one("passed", "float32"), one("failed", "bfloat16", "", "are not close")], "bfloat16 alone: rounding"),
        ([one("passed", "float32"), one("failed", "bfloat16", "", "result 1 is torch.bfloat16")], ""),
        ([one("passed", "float32"), one("failed", "float64")], "a float"),
        ([one("failed", "float32", message="Mismatched elements: 3; nan")], "not written"),
        ([one("failed", "float32", message="killed by SIGSEGV")], "debugger"),
        ([one("failed", "float32")], ""),
    ],
    ids=str,
)
def test_hints(group, hint):
    assert hint in hint_for(group)
    assert bool(hint) == bool(hint_for(group))


def test_many_failures_are_counted():
    text = list(lines([one("failed", message="\n".join("abcdefghij" * 3), operator=f"f{i}") for i in range(40)]))
    assert text[-1].startswith("and more of f12 (1), ")
    assert len(text) < 150


def test_a_backend_is_admitted_without_the_others_at_its_key():
    states = [("cuda", "CUDA", State.LOADED), ("triton", "CUDA", State.SHADOWED), ("cpu", "CPU", State.LOADED)]
    states += [("xpu", "XPU", State.UNSUPPORTED), ("more", "CUDA", State.LOADED)]
    statuses = {name: BackendStatus(name, state, dispatch_key=key) for name, key, state in states}
    assert admitted(statuses, "triton") == "cpu,triton"


SUBSYSTEMS = ("autocast", "compiled", "fake", "first derivatives", "growth", "many rows", "values in 16 bits", "vmap")


def cells(*operators, outcome="passed"):
    return {operator: {key: [outcome] for key in SUBSYSTEMS} for operator in operators}


def test_the_matrix_of_one_operator_has_a_line_for_each_subsystem():
    found = list(matrix.lines(cells("nms") | {"nms.out": {"vmap": ["skipped"], "fake": ["failed"]}}, 80))
    assert found[0].split() == ["nms", "nms.out"]
    assert [line.split("  ")[0] for line in found[1:-1]] == sorted(SUBSYSTEMS)
    assert found[1].split() == ["autocast", "ok", "--"]
    assert found[3].split() == ["fake", "ok", "FAIL"]
    assert found[-1] == matrix.LEGEND


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_the_matrix_has_the_width_of_the_terminal(width, count):
    found = list(matrix.lines(cells(*(f"operator{i}" for i in range(count)), outcome="failed"), width))
    assert all(len(line) <= max(width, len(matrix.LEGEND)) for line in found)
    assert " ".join(found).count("FAIL") == count * len(SUBSYSTEMS) + 1


def test_many_operators_have_a_line_each():
    found = list(matrix.lines(cells(*(f"operator{i}" for i in range(40))), 80))
    assert sum(line.lstrip().startswith("operator") for line in found) == 40


def test_what_was_left_out_is_counted():
    outcomes = [one("passed")._replace(left_out=("boxes: refused", "scores: refused")), one("skipped")]
    assert list(left_out_lines(outcomes)) == ["f: values: 2 left out, such as: boxes: refused"]
    assert list(left_out_lines([one("passed")])) == []


@pytest.mark.slow
def test_what_was_left_out_is_reported(tmp_path):
    """What the reference refuses, and checks that do not apply: no failures, and not passed where nothing was tried."""
    file = tmp_path / "matrix.json"
    done = run_kit("--operators", "looked_up,sorted_out", "--fast", "--matrix", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"looked_up: empty: \d+ left out, such as: .* the reference raises IndexError", done.stdout)
    assert "sorted_out: vmap: 1 left out, such as: the shapes of results depend on values" in done.stdout
    rows = {(row["operator"], row["subsystem"]): row["outcome"] for row in json.loads(file.read_text())["results"]}
    assert rows["sorted_out", "vmap"] == "skipped"
    assert rows["looked_up", "empty"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("marker", ["compiles", "not compiles"])
def test_checks_that_compile_are_marked(marker):
    done = run_kit("--collect-only", "--operators", "looked_up", "-m", marker)
    assert done.returncode == 0, done.stdout + done.stderr
    chosen = re.findall(r"\[looked_up-(.*)-\w+\]", done.stdout)
    assert ("compiled" in chosen) == (marker == "compiles")
    assert ("values" in chosen) == (marker == "not compiles")
