"""The suite for a GPU machine: it installs the wheels, and without a GPU everything that was promised fails."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tests import gpu_suite
from tests.portions import first_of

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

SUITE = Path(__file__).parents[1] / "gpu_suite.py"


def command(wheels, out, *steps):
    return [sys.executable, str(SUITE), "--wheels", str(wheels), "--out", str(out), *steps]


def suite(wheels, out, *steps):
    return subprocess.run(command(wheels, out, *steps), capture_output=True, text=True, check=False)


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


def test_what_is_worth_most_comes_first(monkeypatch, tmp_path):
    """Steps that are alone keep those behind them waiting; the others of a group run side by side."""
    order, both = [], threading.Barrier(2, timeout=60)

    def run(name, *_):
        order.append(name)
        if name in ("b", "c"):
            both.wait()
        return {"exit": 0}

    monkeypatch.setattr(gpu_suite, "run", run)
    monkeypatch.setattr(gpu_suite, "machine", lambda _: {})
    alone = {name: gpu_suite.Step([], is_alone=name in "ad") for name in "abcde"}
    assert gpu_suite.run_all(alone, 2, tmp_path, {}, 900)
    assert (order[0], set(order[1:3]), order[3:]) == ("a", {"b", "c"}, ["d", "e"])
    assert set(json.loads((tmp_path / "results.json").read_text())["steps"]) == set("abcde")


def test_there_is_no_more_time(wheels, tmp_path):
    result = suite(wheels[0].parent, tmp_path, "--seconds", "0.5", "probe", "doctor")
    assert result.returncode == 1
    assert re.fullmatch("stopped: [12] of 2 steps were not started\n", result.stderr)


STOPS = [("1", signal.SIGTERM), ("2", signal.SIGINT), ("1", signal.SIGINT), ("2", signal.SIGTERM)]


@pytest.mark.parametrize("stop", first_of(STOPS, 2), ids=lambda stop: f"{stop[0]}-{stop[1].name}")
def test_the_suite_is_stopped(wheels, tmp_path, stop):
    jobs, number = stop
    started = tmp_path / "probe.log"
    asked = command(wheels[0].parent, tmp_path, "--jobs", jobs, "probe", "gpu")
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not started.exists() or b"..." not in started.read_bytes():  # some tests have passed
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(number)
        _, said = running.communicate()
    assert running.returncode == 1
    assert said == "stopped: 1 of 2 steps were not started\n"
    report = json.loads((tmp_path / "results.json").read_text())["steps"]
    assert list(report) == ["probe"]
    assert report["probe"]["exit"] == "stopped with the suite"
    assert report["probe"]["passed"] > 0


def test_a_backend_of_transformer_ops_alone(tmp_path):
    """Two wheels for one device are installed: what tests one of them must not be given the other."""
    seen = set()
    for name, step in gpu_suite.steps(tmp_path).items():
        if step.kit_of == "transformer_ops" or str(gpu_suite.TRANSFORMER_BACKENDS) in " ".join(step.command):
            backend = "cuda" if "cuda" in name else "triton"
            expected = {"TRANSFORMER_OPS_BACKENDS": f"{backend},cpu", "TRANSFORMER_OPS_REQUIRE": backend}
            assert step.environment == expected, name
            assert {"--backend", backend} <= set(step.command) or f"backends/{backend}/tests" in " ".join(step.command)
            seen.add(backend)
    assert seen == {"cuda", "triton"}


def test_wrong_usage(wheels, tmp_path):
    assert "make wheels" in suite(tmp_path, tmp_path / "out").stderr
    assert "unknown steps" in suite(wheels[0].parent, tmp_path / "out", "nothing").stderr
    assert "no step kit.nonsense" in suite(wheels[0].parent, tmp_path / "out", "kit.nonsense").stderr
