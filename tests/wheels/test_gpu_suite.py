"""The suite for a GPU machine: it installs the wheels, and without a GPU everything that was promised fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

SUITE = Path(__file__).parents[1] / "gpu_suite.py"


def suite(wheels, out, *steps):
    command = [sys.executable, str(SUITE), "--wheels", str(wheels), "--out", str(out), *steps]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(wheels, tmp_path):
    result = suite(wheels[0].parent, tmp_path, "doctor", "probe", "gpu")
    report = json.loads((tmp_path / "results.json").read_text())["steps"]
    assert result.returncode == 1, result.stdout + result.stderr
    assert report["doctor"]["exit"] == 0
    assert json.loads((tmp_path / "doctor.log").read_text())["backends"]["cuda"]["state"] == "unsupported"
    assert report["probe"]["exit"] == 0
    assert report["probe"]["passed"] > 20
    assert report["gpu"]["exit"] == 1
    assert report["gpu"]["passed"] == 0
    assert len(report["gpu"]["failed"]) > 20


def test_a_step_that_takes_too_long_is_stopped(wheels, tmp_path):
    result = suite(wheels[0].parent, tmp_path, "--limit", "0.5", "probe", "doctor")
    report = json.loads((tmp_path / "results.json").read_text())["steps"]
    assert result.returncode == 1
    assert {step["exit"] for step in report.values()} == {"stopped after 0.5 s"}


def test_wrong_usage(wheels, tmp_path):
    assert "make wheels" in suite(tmp_path, tmp_path / "out").stderr
    assert "unknown steps" in suite(wheels[0].parent, tmp_path / "out", "nothing").stderr
    assert "no step kit.nonsense" in suite(wheels[0].parent, tmp_path / "out", "kit.nonsense").stderr
