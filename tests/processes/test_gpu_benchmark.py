"""benchmarks.gpu from start to end, in tiny sizes without a GPU: a kernel that fails or never ends, tables."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import tables
from benchmarks.gpu.document import load

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # a minute, for what a run on a GPU shows as well

ROOT = Path(__file__).parents[2]
FAILING = "7B/rms_norm/64 x 128/torch.float32/forward"
WAITING = "7B/geglu/64 x 192/torch.bfloat16/forward"
LIGER = """
import os, torch

class LigerRMSNormFunction:
    @staticmethod
    def apply(x, weight, eps):
        if x.dtype == torch.float32:
            print("AcceleratorError: a kernel failed", file=__import__("sys").stderr, flush=True)
            os._exit(1)
        return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)

class LigerGELUMulFunction:
    @staticmethod
    def apply(a, b):
        while len(a) == 64:
            pass
        return torch.nn.functional.gelu(a, approximate="tanh") * b

class LigerSoftmaxFunction:
    @staticmethod
    def apply(x):
        return torch.softmax(2 * x, -1)
"""


def command(folder, *arguments):
    words = ["--device", "cpu", "--quick", "--cache", str(folder / "cache"), *arguments]
    return [sys.executable, "-m", "benchmarks.gpu", *words]


def run(folder, *arguments):
    liger = folder / "liger_kernel"
    liger.mkdir(exist_ok=True)
    (liger / "__init__.py").touch()  # before an installed one, on the path
    (liger / "ops.py").write_text(LIGER)
    variables = {"PYTHONPATH": str(folder), "TRANSFORMER_OPS_FALLBACK": "reference"}
    return subprocess.run(
        command(folder, *arguments), cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What a run of both backends says, and its results."""
    folder = tmp_path_factory.mktemp("measured")
    limits = ("--seconds", "600", "--row-seconds", "30")
    result = run(folder, "--backends", "cpu,triton", "--json", str(folder / "speed.json"), *limits)
    return result, load(folder / "speed.json")


def test_every_case_is_measured_but_those_that_end_the_process(measured):
    result, document = measured
    first, second = document.runs["cpu"], document.runs["triton"]
    forms = ("", "+backward")
    expected = {f"{FAILING}{form}": "AcceleratorError: a kernel failed" for form in forms}
    expected |= {f"{WAITING}{form}": "stopped: it took more than 30 s" for form in forms}
    assert first.stopped == expected, result.stderr
    assert {name for name, row in first.rows.items() if row is None} == set(first.stopped)
    assert second.stopped == {}
    assert set(second.rows) == {name for name in first.rows if not name.startswith("muladd/")}
    assert first.rows["decode/cross_entropy/1 x 500/torch.bfloat16/forward"]["off"]["ours"] < 0.01
    assert first.rows["decode/fused_linear_cross_entropy/1 x 128, 500 classes/torch.bfloat16/forward"]
    for row in (row for row in first.rows.values() if row):
        assert {"ours", "eager", "compile"} <= set(row["seconds"]["wall"]), row
        assert ("host" in row["seconds"]) == (row["group"] == "decode" or row["size"] == "4 elements")
    assert result.returncode == 1
    assert len(document.findings()) == len(expected)


def test_what_is_wrong_is_seen(measured):
    document = measured[1]
    row = document.runs["cpu"].rows["7B/softmax/64 x 128/torch.bfloat16/forward"]
    assert row["off"]["ours"] < 0.01
    assert row["off"]["liger"] > 0.1
    assert "Softmax" not in "".join(document.findings())
    row["off"]["ours"] = float("nan")
    assert "cpu: 7B/softmax/64 x 128/torch.bfloat16/forward: off by nan" in document.findings()
    row["off"]["ours"] = 0.0


def test_tables(measured):
    document = measured[1]
    number, percent = r"[\d.e+]+", r"\d+%"
    four = rf"{number} \| {number} \| {number} \| {number}"
    row = rf"\| `rms_norm` \| 64 x 128 \| forward \| {number} \| - \| {percent} \| {four} \|"
    assert re.search(row, tables.training(document)), tables.training(document)
    row = rf"\| `rope` \| 1 x 1, 4 and 2 heads of 16 \| forward\+backward \| - \| {number} \| - / {number} \|"
    assert re.search(row, tables.decoding(document)), tables.decoding(document)
    row = (
        rf"\| `muladd, out=` \| 1024 elements, float32 \| {number} \| {percent} \| {number} \| {number} \| {number} \|"
    )
    assert re.search(row, tables.muladd(document)), tables.muladd(document)
    for table in (tables.training(document), tables.decoding(document), tables.muladd(document)):
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1
        assert table.splitlines()[-1].startswith("Measured on: ")


def test_no_time(tmp_path):
    result = run(tmp_path, "--backends", "cpu", "--json", str(tmp_path / "speed.json"), "--seconds", "0")
    assert result.returncode == 1
    assert "nothing was measured" in result.stdout


def test_warm(tmp_path):
    result = run(tmp_path, "--backends", "cpu", "--warm", "--warm-seconds", "1", "--jobs", "1")
    assert result.returncode == 1
    assert result.stderr == "not everything was compiled in 1 s\n"


def test_what_was_measured_stays(tmp_path):
    path = tmp_path / "speed.json"
    asked = command(tmp_path, "--backends", "cpu", "--json", str(path))
    with subprocess.Popen(asked, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline().startswith("cpu 7B/rms_norm/")
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)  # the worker has the same output, and has ended, too
    assert running.returncode == 1
    assert said.splitlines()[-1] == "stopped; what was measured is in the file"
    assert any(load(path).runs["cpu"].rows.values())
